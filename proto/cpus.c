#include "cpus.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affinity.h"
#include "host_files.h"

#define TRIES 3

/* Reads a quota. Version 2 has "150000 100000", in us, or "max 100000". Version 1 has two files; -1 is no
 * quota. */
static bool read_quota(const char *root, const struct cgroup *cgroup, long long *ret_quota,
                       long long *ret_period, bool *missed)
{
	char folder[HOST_FILES_PATH_BYTES], path[HOST_FILES_PATH_BYTES + 32], line[128];

	cgroup_folder(cgroup, folder);
	if (!cgroup->is_v1) {
		snprintf(path, sizeof path, "%s/cpu.max", folder);
		return host_files_read_line(root, path, line, sizeof line, missed) &&
		       sscanf(line, "%lld %lld", ret_quota, ret_period) == 2;
	}
	snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
	if (!host_files_read_line(root, path, line, sizeof line, missed) ||
	    sscanf(line, "%lld", ret_quota) != 1)
		return false;
	snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
	return host_files_read_line(root, path, line, sizeof line, missed) &&
	       sscanf(line, "%lld", ret_period) == 1;
}

/* The smallest quota of this cgroup and its ancestors. */
static unsigned read_all(const char *root, bool *missed)
{
	unsigned least = UINT_MAX;
	long long quota, period;
	struct cgroup cgroup;

	if (!cgroup_find(root, "cpu", &cgroup, missed))
		return UINT_MAX;
	do {
		if (!read_quota(root, &cgroup, &quota, &period, missed) || quota <= 0 || period <= 0)
			continue;
		long long cpus = quota / period + (quota % period > 0);
		least = cpus < least ? (unsigned)cpus : least;
	} while (cgroup_up(&cgroup));
	return least;
}

unsigned cpus_of_quota(const char *root)
{
	unsigned n = UINT_MAX;
	bool missed = true;

	for (unsigned i = 0; i < TRIES && missed; i++) {
		missed = false;
		n = read_all(root, &missed);
	}
	return n;
}

unsigned cpus_count(void)
{
	unsigned allowed = affinity_count(), quota = allowed > 1 ? cpus_of_quota("") : 1;

	return quota < allowed ? quota : allowed;
}
