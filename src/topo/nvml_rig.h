// nvml_rig.h: NVML that is not there, for source_test.c: two GPUs with links to switches, to each other, and to what
// makes no sense.
#pragma once
#include "topo/nvml.h"
#include "topo/topo_rig.h"

static int fake_shutdowns;
static int fake_ok(void)
{
  return 0;
}

static int fake_shutdown(void)
{
  return fake_shutdowns++, 0;
}

static int fake_count(unsigned *count)
{
  *count = 2;
  return 0;
}

// Devices are pointers to the digit that makes the difference.
static char fake_devices[2];

static int fake_by_index(unsigned i, void **device)
{
  *device = &fake_devices[i];
  return i < 2 ? 0 : 2;
}

static int fake_by_bus(const char *bus, void **device)
{
  int i = strcmp(bus, "0000:03:00.0") == 0 ? 0 : strcmp(bus, "0000:83:00.0") == 0 ? 1 : -1;
  *device = &fake_devices[i > 0];
  return i < 0 ? 6 : 0;
}

static int fake_index(void *device, unsigned *index)
{
  *index = (unsigned)((char *)device - fake_devices);
  return 0;
}

static int fake_pci(void *device, tt_nvml_pci *pci)
{
  strcpy(pci->bus_id, device == fake_devices ? "0000:03:00.0" : "0000:83:00.0");
  pci->device_id = 0x233010de;
  pci->subsystem_id = 0x16c110de;
  return 0;
}

static int fake_sm = 90;
static int fake_capability(void *device, int *major, int *minor)
{
  (void)device;
  *major = fake_sm / 10;
  *minor = fake_sm % 10;
  return 0;
}

static int fake_can(void *device, unsigned link, int what, unsigned *yes)
{
  (void)device;
  *yes = link != 4 && what == 0;
  return link == 5 ? 3 : 0;
}

static int fake_state(void *device, unsigned link, int *active)
{
  (void)device;
  *active = link != 1;
  return 0;
}

// 0, 2: an NVSwitch that the machine shows; 3: the other GPU; 6: text that is none; 7: nothing; 8: an error.
static int fake_remote(void *device, unsigned link, tt_nvml_pci *pci)
{
  const char *other = device == fake_devices ? "0000:83:00.0" : "0000:03:00.0";
  const char *ends[] = {"0000:C1:00.0", "", "0000:C1:00.0", other, "", "", "\x01\x02<", "", ""};
  strcpy(pci->bus_id, link < 9 ? ends[link] : "");
  return link >= 8 ? 3 : 0;
}

static int fake_fields(void *device, int count, tt_nvml_field *f)
{
  (void)device;
  for (int i = 0; i < count; i++) {
    f[i].result = 0;
    f[i].value.u = f[i].field == 165   ? f[i].scope != 1
                   : f[i].field == 170 ? 3
                   : f[i].field == 171 ? f[i].scope != 1
                   : f[i].field == 172 ? 40000
                                       : 0;
  }
  return 0;
}

static int fake_gen(void *device, unsigned *gen)
{
  (void)device;
  *gen = 5;
  return 0;
}

static int fake_width(void *device, unsigned *width)
{
  (void)device;
  *width = 16;
  return 0;
}

static const tt_nvml_ops fake = {.init = fake_ok,
                                 .shutdown = fake_shutdown,
                                 .count = fake_count,
                                 .by_index = fake_by_index,
                                 .by_bus = fake_by_bus,
                                 .index = fake_index,
                                 .pci = fake_pci,
                                 .capability = fake_capability,
                                 .link_can = fake_can,
                                 .link_state = fake_state,
                                 .link_remote = fake_remote,
                                 .fields = fake_fields,
                                 .max_generation = fake_gen,
                                 .max_width = fake_width};

static tt_nvml *fake_nvml(void)
{
  tt_nvml *n = NULL;
  assert_int_equal(tt_nvml_open_ops(&fake, &n), ncclSuccess);
  assert_non_null(n);
  return n;
}
