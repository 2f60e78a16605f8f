// sockuser.h: whose process is at the other end of a TCP connection inside this network namespace.
#pragma once
#include <stdbool.h>

// Does the other end of a connected TCP socket belong to another user's process (not this one's effective user)? The
// kernel is asked (sock_diag), so the peer cannot lie. False also when the other end is not in this network
// namespace (another machine), and where the kernel cannot be asked, which is said at INFO. Call it once the peer
// has sent something: a connection that is not accepted yet counts as root's. Never waits. Any thread.
bool tt_sock_is_strangers(int fd);
