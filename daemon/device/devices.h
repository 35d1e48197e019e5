/* devices.h: which devices kopsd serves, from the setting of that name; and the modules that bring them. */
#ifndef KOPS_DEVICES_H
#define KOPS_DEVICES_H

#include "config/config.h"
#include "device/device.h"
#include "device_list.h"

struct devices {
	struct device *list[DEVICES_MAX];
	unsigned n;
	const struct backend *pinning; /* whose memory can be registered for DMA; NULL: none */
};

/*
 * Opens the devices that the setting names, and the modules where they are asked for. KOPS_E_INVALID,
 * KOPS_E_DEVICE and what a device answers, with a sentence in why; those opened so far are in *ret.
 */
int devices_open(uv_loop_t *loop, const struct config *config, struct devices *ret, char why[CONFIG_WHY_BYTES]);

#endif
