/* devices.h: opens the devices named by the setting `devices`, and the modules that provide them. */
#ifndef KOPS_DEVICES_H
#define KOPS_DEVICES_H

#include "config/config.h"
#include "device/device.h"
#include "device_list.h"

struct devices {
	struct device *list[DEVICES_MAX];
	unsigned n;
	const struct driver *pinning; /* a driver that can register memory for DMA; NULL: none */
};

/*
 * Opens the devices that the setting names, and their modules. KOPS_E_INVALID, KOPS_E_DEVICE and errors of
 * devices, with a sentence in why; *ret then has those opened so far.
 */
int devices_open(uv_loop_t *loop, const struct config *config, struct devices *ret, char why[CONFIG_WHY_BYTES]);

#endif
