/* Tests how many CPUs quotas of cgroups leave, in both versions. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../fake_root.h"
#include "affinity.h"
#include "cpus.h"

static int set_up(void **state)
{
	(void)state;
	strcpy(root, "/tmp/kops-cpus-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof command, "rm -r %s", root);
	return system(command);
}

static void test_version_2(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/kops.slice/kopsd.service\n");
	put("/proc/self/mountinfo", "31 22 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
	assert_int_equal(cpus_of_quota(root), UINT_MAX);
	put("/sys/fs/cgroup/kops.slice/kopsd.service/cpu.max", "max 100000\n");
	assert_int_equal(cpus_of_quota(root), UINT_MAX);
	put("/sys/fs/cgroup/kops.slice/kopsd.service/cpu.max", "200000 100000\n");
	assert_int_equal(cpus_of_quota(root), 2);
	put("/sys/fs/cgroup/kops.slice/kopsd.service/cpu.max",
	    "200001 100000\n"); /* a fraction of a CPU counts as one */
	assert_int_equal(cpus_of_quota(root), 3);
	put("/sys/fs/cgroup/kops.slice/kopsd.service/cpu.max", "1000 100000\n");
	assert_int_equal(cpus_of_quota(root), 1);
	put("/sys/fs/cgroup/kops.slice/kopsd.service/cpu.max", "800000 100000\n");
	put("/sys/fs/cgroup/kops.slice/cpu.max", "150000 50000\n"); /* the parent's quota is less */
	assert_int_equal(cpus_of_quota(root), 3);
}

static void test_version_1(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n3:cpuset:/wrong\n0::/\n");
	put("/proc/self/mountinfo",
	    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	    "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	    "34 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
	put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
	put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
	assert_int_equal(cpus_of_quota(root), UINT_MAX);
	put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
	assert_int_equal(cpus_of_quota(root), 4);
}

static void test_files_that_say_nothing(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/\n");
	put("/proc/self/mountinfo", "31 22 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
	for (unsigned i = 0; i < 5; i++) {
		put("/sys/fs/cgroup/cpu.max", (const char *[]){"", "\n", "7", "0 100000\n", "100000 0\n"}[i]);
		assert_int_equal(cpus_of_quota(root), UINT_MAX);
	}
}

static void test_this_host(void **state)
{
	unsigned quota = cpus_of_quota(""), allowed = affinity_count();

	(void)state;
	assert_int_equal(cpus_count(), quota < allowed ? quota : allowed);
	assert_true(cpus_count() >= 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_version_2, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_version_1, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_files_that_say_nothing, set_up, tear_down),
	    cmocka_unit_test(test_this_host),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
