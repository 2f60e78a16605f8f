// monitor.c: events for clients that monitor.
#include "base/text.h"
#include "ras/ring.h"

enum { DEVICES_MOST = 64 };

static void list_devices(ras_text *out, const int *devices, int n, const char *between)
{
  for (int i = 0; i < n; i++) {
    ras_add(out, "%s%d", i == 0 ? "" : between, devices[i]);
  }
}

void ras_event(ras_server *s, unsigned group, const char *name, const tt_ras_member *who, const char *details)
{
  char now[32], host[TT_ADDR_TEXT];
  int devices[DEVICES_MOST], n = s->nclients > 0 ? ras_registry_devices(who->proc.cookie, devices, DEVICES_MOST) : 0;
  ras_text text = {.size = 0}, json = {.size = 0};
  if (s->nclients == 0) {
    return;
  }
  ras_time_text(now);
  ras_host_text(&who->at, host);
  ras_add(&text, "[%s] %s: Process %d on node %s managing GPU%s ", now, name, who->proc.pid, host, n == 1 ? "" : "s");
  list_devices(&text, devices, n, ",");
  ras_add(&text, "%s%s", details[0] == '\0' ? "" : " ", details);
  ras_add(&json, "{\"timestamp\": \"%s\", \"group\": \"%s\", \"event\": \"%s\", \"peer\": {\"host\": ", now,
          group == RAS_LIFECYCLE ? "lifecycle" : "trace", name);
  ras_add_string(&json, host);
  ras_add(&json, ", \"pid\": %d, \"cuda_devs\": [", who->proc.pid);
  list_devices(&json, devices, n, ", ");
  ras_add(&json, "], \"nvml_devs\": [");
  list_devices(&json, devices, n, ", ");
  ras_add(&json, "]}, \"details\": ");
  ras_add_string(&json, details);
  ras_add(&json, "}");
  if (!text.failed && !json.failed) {
    ras_clients_tell(s, group, text.data, json.data);
  }
  ras_text_free(&text);
  ras_text_free(&json);
}
