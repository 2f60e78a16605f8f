// query.h: asks all processes of the job at once, and collects their answers until a deadline.
//
// Each process is asked over a connection of its own, which both ends authenticate. It answers one page for each
// request, so no answer has to wait for room. At most one query is under way; all clients that come meanwhile wait.
#pragma once
#include "ras/server.h"

// Starts a query; none is under way. `arg`: as ras_request has it. `seconds`: when the clients want their answer; 0:
// they say nothing. The answer may come at once. Without memory none is started: the clients wait.
void ras_query_start(ras_server *s, ras_question what, uint32_t arg, double seconds);
// What it waits for.
void ras_query_poll(ras_server *s);
// Goes on, and answers the clients when it is over.
void ras_query_step(ras_server *s);
void ras_query_cancel(ras_server *s);
