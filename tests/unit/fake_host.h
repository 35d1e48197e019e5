/*
 * fake_host.h: a host that has 16 GiB of memory and no cgroups, and on which nobody else takes any. One file of
 * a program includes it, after cmocka.h.
 */
#ifndef KOPS_TEST_FAKE_HOST_H
#define KOPS_TEST_FAKE_HOST_H

#include <stdlib.h>

#include "fake_root.h"
#include "host_memory.h"

#define FAKE_HOST_MIB (1ull << 20)
/* Half of its memory is free, and a sixteenth is kept free. */
#define FAKE_HOST_ROOM (7168 * FAKE_HOST_MIB)

/* From here on, host_memory.h's functions are about this host. */
static inline void fake_host_make(void)
{
	strcpy(root, "/tmp/kops-host-XXXXXX");
	assert_non_null(mkdtemp(root));
	put("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n");
	host_memory_set_root(root);
}

/* Returns 0 unless files of the host remain. */
static inline int fake_host_remove(void)
{
	char command[64];

	host_memory_set_root(NULL);
	snprintf(command, sizeof command, "rm -r %s", root);
	return system(command);
}

#endif
