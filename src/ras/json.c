// json.c: the report as JSON. Old readers know the keys of NCCL 2.28.7; what is ours stands under "tutti".
#include "device/lane.h"
#include "ras/report.h"

static const char *bool_text(bool b)
{
  return b ? "true" : "false";
}

static void add_place(ras_text *out, const tt_addr *host, int pid, int device)
{
  char text[TT_ADDR_TEXT];
  ras_add(out, "\"host\": ");
  ras_add_string(out, host->family != 0 ? ras_host_text(host, text) : "");
  ras_add(out, ", \"pid\": %d, \"cuda_dev\": %d, \"nvml_dev\": %d", pid, device, device);
}

static void json_add_rank(ras_text *out, const ras_rank *r)
{
  const tt_ras_state *s = &r->state;
  ras_add(out, "        {\"rank\": %d, ", r->rank);
  add_place(out, &r->host, r->pid, r->device);
  ras_add(
      out,
      ",\n         \"status\": {\"init_state\": %d, \"async_error\": %d, \"finalize_called\": %s, \"destroy_flag\": "
      "%s, \"abort_flag\": %s},\n         \"collective_counts\": {",
      s->init_state, s->async_error, bool_text(s->finalize_called), bool_text(s->destroy_flag),
      bool_text(s->abort_flag));
  for (int i = 0; i < TT_RAS_FUNCS; i++) {
    ras_add(out, "%s\"%s\": %llu", i == 0 ? "" : ", ", ras_func_names[i], (unsigned long long)s->counts[i]);
  }
  ras_add(out, "}}");
}

// What the rank waits for, in words and numbers, and why.
static void add_verdict(ras_text *out, const ras_rank *r)
{
  const tt_ras_state *s = &r->state;
  char call[TT_CALL_TEXT];
  ras_add(out, "        {\"rank\": %d, \"sequence\": %llu, \"waits\": %s", r->rank, (unsigned long long)s->sequence,
          bool_text(s->wait_ms > 0));
  if (s->wait_ms > 0) {
    bool behind = (s->wait_how & TT_WAIT_BEHIND) != 0;
    ras_add(out, ", \"waits_ms\": %llu, \"waits_for\": %d, \"in\": ", (unsigned long long)s->wait_ms,
            behind ? -1 : s->wait_peer);
    ras_add_string(out, behind ? "its stream, behind other work"
                               : tt_call_describe(call, s->wait_sig, s->wait_count, s->wait_peer));
  }
  ras_add(out, ", \"last_call\": ");
  ras_add_string(out, ras_last_text(s, call));
  ras_add(out, ", \"verdict\": {\"class\": \"%s\", \"cause\": %d, \"text\": ", ras_class_text(s), s->cause);
  ras_add_string(out, s->why);
  ras_add(out, "}");
  ras_add(out, "}");
}

static void add_missing(ras_text *out, const ras_missing *m)
{
  bool first = out->data[out->size - 1] == '[';
  ras_add(out, "%s\n        {\"rank\": %d, ", first ? "" : ",", m->rank);
  add_place(out, &m->host, m->pid, m->device);
  ras_add(out, ", \"status\": {\"unresponsive\": %s, \"considered_dead\": %s}}", bool_text(m->unresponsive),
          bool_text(m->dead));
}

static void add_ranks(ras_text *out, const ras_comm *c, void (*add)(ras_text *out, const ras_rank *r))
{
  for (int i = 0; i < c->n; i++) {
    ras_add(out, "%s\n", i == 0 ? "" : ",");
    add(out, &c->ranks[i]);
  }
}

static void add_comm(ras_text *out, const ras_report *r, const ras_comm *c)
{
  ras_add(out,
          "    {\"hash\": \"0x%llx\", \"secondary_hash\": \"0x%llx:0x%llx\", \"size\": %d, \"ranks_count\": %d, "
          "\"missing_ranks_count\": %d,\n      \"ranks\": [",
          (unsigned long long)c->ranks[0].hash, (unsigned long long)c->ranks[0].secondary[0],
          (unsigned long long)c->ranks[0].secondary[1], c->size, c->n, c->size - c->n);
  add_ranks(out, c, json_add_rank);
  ras_add(out, "\n      ],\n      \"missing_ranks\": [");
  ras_report_missing(r, c, add_missing, out);
  ras_add(out, "\n      ],\n      \"tutti\": {\"ranks\": [");
  add_ranks(out, c, add_verdict);
  ras_add(out, "\n      ]}}");
}

void ras_write_json(const ras_report *r, ras_text *out)
{
  char now[32];
  ras_add(out,
          "{\n  \"nccl_version\": \"%d.%d.%d\",\n  \"cuda_runtime_version\": %d,\n  \"cuda_driver_version\": %d,\n"
          "  \"timestamp\": \"%s\",\n  \"communicators_count\": %d,\n  \"communicators\": [",
          NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, RAS_CUDA_VERSION, RAS_CUDA_DRIVER_VERSION, ras_time_text(now), r->ncomms);
  for (int i = 0; i < r->ncomms; i++) {
    ras_add(out, "%s\n", i == 0 ? "" : ",");
    add_comm(out, r, &r->comms[i]);
  }
  ras_add(out, "\n  ],\n  \"ras\": {\"collection_time_sec\": %.3f, \"timeouts_count\": %d}\n}\n", r->seconds,
          r->timeouts);
}
