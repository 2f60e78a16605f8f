// wire.c: the wires of hosts that lie far apart. Takes the place of the bridge where delay and speed matter, and of tc,
// whose netem not every kernel has.
//
//   wire PREFIX HOSTS GBIT MS [CORE]
//
// Makes an interface eth0 (TUN) in each of the namespaces PREFIXh0, PREFIXh1, … and carries what they send to the
// host that it is for, 10.77.0.(HOST+1). A host's way out and its way in each carry GBIT Gbit/s (0: any), heads of
// Ethernet and TCP included; a packet is MS milliseconds later at the other end. Packets between two hosts keep their
// order, and none is dropped here; a host that does not take its own may lose some, as from any card. Says "ready" once
// all interfaces are there, and runs until it is killed.
//
// One thread. It sleeps until a packet comes or is due; what it needs for a packet is time of a core, which a real
// network does not need. With CORE it stays on that one and looks for packets all the time: whoever measures keeps the
// hosts' processes off it.
#define _GNU_SOURCE // setns, ppoll
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
  HOSTS_MOST = 64,
  HEAD = sizeof(struct virtio_net_hdr),
  PACKET_MOST = HEAD + 65536,
  BATCH = 16,         // packets taken from a host before the others have their turn
  SEGMENT_HEADS = 52, // IP and TCP with time stamps: what each further segment of a long packet adds,
  FRAME_HEADS = 38,   // and Ethernet with its gap and preamble
};

typedef struct packet {
  struct packet *next;
  uint64_t due;
  size_t size;
  char bytes[PACKET_MOST];
} packet;

typedef struct host {
  int fd;
  uint64_t out_free, in_free; // when its way out, and its way in, can carry the next byte
  packet *first, **end;       // what is on its way to the host, in the order of `due`
} host;

static host hosts[HOSTS_MOST];
static int nhosts;
static double ns_per_byte;
static uint64_t delay;
static packet *spare;
static bool looks; // and never sleeps

static void die(const char *what)
{
  fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
  exit(1);
}

static uint64_t wire_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int open_interface(const char *prefix, int number)
{
  char path[128];
  struct ifreq name = {.ifr_name = "eth0", .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
  snprintf(path, sizeof path, "/run/netns/%sh%d", prefix, number);
  int ns = open(path, O_RDONLY | O_CLOEXEC);
  if (ns < 0 || setns(ns, CLONE_NEWNET) != 0) {
    die(path);
  }
  close(ns);
  int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 || ioctl(fd, TUNSETIFF, &name) != 0 || ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) {
    die("/dev/net/tun");
  }
  return fd;
}

// What a packet occupies of a wire: a long one goes in segments, each with heads of its own.
static double wire_bytes(const packet *p)
{
  struct virtio_net_hdr h;
  memcpy(&h, p->bytes, sizeof h);
  size_t size = p->size - HEAD, data = size - (h.hdr_len < size ? h.hdr_len : 0);
  size_t segments = h.gso_type != 0 && h.gso_size > 0 ? (data + h.gso_size - 1) / h.gso_size : 1;
  return (double)(size + (segments - 1) * SEGMENT_HEADS + segments * FRAME_HEADS);
}

// The host that a packet is for; NULL: none of these.
static host *receiver_of(const packet *p)
{
  const unsigned char *ip = (const unsigned char *)p->bytes + HEAD;
  bool known = p->size >= HEAD + 20 && ip[0] >> 4 == 4 && ip[16] == 10 && ip[17] == 77 && ip[18] == 0 && ip[19] >= 1 &&
               ip[19] <= nhosts;
  return known ? &hosts[ip[19] - 1] : NULL;
}

static void drop(packet *p)
{
  p->next = spare;
  spare = p;
}

static packet *new_packet(void)
{
  packet *p = spare;
  if (p != NULL) {
    spare = p->next;
  } else if ((p = malloc(sizeof *p)) == NULL) {
    die("memory");
  }
  return p;
}

// Takes what the host sends. Returns whether there may be more.
static bool take_from(host *from)
{
  for (int i = 0; i < BATCH; i++) {
    packet *p = new_packet();
    ssize_t n = read(from->fd, p->bytes, sizeof p->bytes);
    host *to = NULL;
    if (n > HEAD) {
      p->size = (size_t)n;
      to = receiver_of(p);
    }
    if (to == NULL) {
      drop(p);
      if (n < 0) {
        return false;
      }
      continue;
    }
    uint64_t now = wire_now(), begin = from->out_free > now ? from->out_free : now;
    uint64_t takes = (uint64_t)(wire_bytes(p) * ns_per_byte);
    from->out_free = begin + takes;
    to->in_free = (to->in_free > begin ? to->in_free : begin) + takes;
    p->due = to->in_free + delay;
    p->next = NULL;
    *to->end = p;
    to->end = &p->next;
  }
  return true;
}

// Hands over what is due. Returns when the next packet will be; 0: there is none.
static uint64_t deliver(host *to)
{
  while (to->first != NULL) {
    packet *p = to->first;
    if (p->due > wire_now()) {
      return p->due;
    }
    if (write(to->fd, p->bytes, p->size) < 0 && errno == EAGAIN) {
      return wire_now() + 10000;
    }
    to->first = p->next;
    to->end = to->first == NULL ? &to->first : to->end;
    drop(p);
  }
  return 0;
}

static void run(struct pollfd *waits)
{
  for (;;) {
    bool more = false;
    uint64_t next = 0;
    for (int i = 0; i < nhosts; i++) {
      more |= take_from(&hosts[i]);
    }
    for (int i = 0; i < nhosts; i++) {
      uint64_t due = deliver(&hosts[i]);
      next = due != 0 && (next == 0 || due < next) ? due : next;
    }
    uint64_t now = wire_now();
    if (looks || more || (next != 0 && next <= now)) {
      continue;
    }
    struct timespec left = {(time_t)((next - now) / 1000000000u), (long)((next - now) % 1000000000u)};
    if (ppoll(waits, (nfds_t)nhosts, next != 0 ? &left : NULL, NULL) < 0 && errno != EINTR) {
      die("ppoll");
    }
  }
}

static void take_core(const char *number)
{
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(atoi(number), &core);
  if (sched_setaffinity(0, sizeof core, &core) != 0) {
    die(number);
  }
  looks = true;
}

int main(int argc, char **argv)
{
  if (argc < 5 || argc > 6 || (nhosts = atoi(argv[2])) < 1 || nhosts > HOSTS_MOST) {
    fprintf(stderr, "usage: wire PREFIX HOSTS(1 to %d) GBIT MS [CORE]\n", HOSTS_MOST);
    return 2;
  }
  double gbit = atof(argv[3]);
  ns_per_byte = gbit > 0 ? 8 / gbit : 0;
  delay = (uint64_t)(atof(argv[4]) * 1e6);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_TIMERSLACK, 1);
  struct pollfd waits[HOSTS_MOST];
  for (int i = 0; i < nhosts; i++) {
    hosts[i].fd = open_interface(argv[1], i);
    hosts[i].end = &hosts[i].first;
    waits[i] = (struct pollfd){.fd = hosts[i].fd, .events = POLLIN};
  }
  if (argc == 6) {
    take_core(argv[5]);
  }
  puts("ready");
  fflush(stdout);
  run(waits);
}
