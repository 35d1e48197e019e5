/* devices.h: which devices kopsd serves, from the setting of that name; and the GPU module. */
#ifndef KOPS_DEVICES_H
#define KOPS_DEVICES_H

#include "server.h"

/*
 * Opens the devices that s->config.devices names into s->devices, and the GPU module where one is asked for,
 * into s->gpu. KOPS_E_INVALID, KOPS_E_DEVICE and what a device answers, with a sentence in why.
 */
int devices_open(struct server *s, char why[CONFIG_WHY_BYTES]);

#endif
