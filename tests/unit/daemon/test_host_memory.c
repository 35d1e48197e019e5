/*
 * Tests what may be claimed: the least of the host's memory and the memory cgroups above the process, of both
 * versions.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../fake_host.h"
#include "kops.h"

#define MIB (1ull << 20)

static unsigned opens_until_failure; /* 0: none fails. The call that fails sets it to 0. */

static bool fails(void)
{
	if (opens_until_failure == 0 || --opens_until_failure > 0)
		return false;
	errno = EMFILE;
	return true;
}

/* Replaces the system's. */
FILE *fopen(const char *path, const char *mode)
{
	FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");

	return fails() ? NULL : real(path, mode);
}

int open(const char *path, int flags, ...)
{
	int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");

	return fails() ? -1 : real(path, flags);
}

/* Details of the latest refusal, for the log and not for clients. */
static char details[512];

static void note_details(const char *text)
{
	snprintf(details, sizeof details, "%s", text);
}

static int set_up(void **state)
{
	(void)state;
	fake_host_make();
	host_memory_tell_refusals(note_details);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return fake_host_remove();
}

/* A sixteenth of the 16 GiB stays free. */
static void test_a_host_without_cgroups(void **state)
{
	char why[256] = "";

	(void)state;
	assert_int_equal(host_memory_total(), 16384 * MIB);
	assert_int_equal(host_memory_room(), 7168 * MIB);
	assert_int_equal(host_memory_claim(7168 * MIB, why, sizeof why), 0);
	assert_int_equal(host_memory_room(), 0);
	assert_int_equal(host_memory_claim(1, why, sizeof why), KOPS_E_NOMEM);
	assert_non_null(strstr(details,
	                       "the host has 17179869184 bytes, 8589934592 free (1073741824 kept free, "
	                       "7516192768 reserved for others)"));
	host_memory_settle(7168 * MIB);
	assert_int_equal(host_memory_claim(7168 * MIB + 1, why, sizeof why), KOPS_E_NOMEM);
	assert_int_equal(host_memory_room(), 7168 * MIB);
	assert_int_equal(host_memory_claim(1ull << 62, why, sizeof why), KOPS_E_NOMEM);
	assert_int_equal(host_memory_room(), 7168 * MIB);
}

/* Claims that did not look anew count too. */
static void test_what_was_claimed_is_not_there_for_others(void **state)
{
	char why[256];

	(void)state;
	assert_int_equal(host_memory_claim(MIB, why, sizeof why), 0);
	assert_int_equal(host_memory_claim(3000 * MIB, why, sizeof why), 0);
	assert_int_equal(host_memory_try(4167 * MIB, why, sizeof why), 0);
	assert_int_equal(host_memory_try(4168 * MIB, why, sizeof why), KOPS_E_NOMEM);
	host_memory_settle(3001 * MIB);
}

#define LOOK_HOLDS_MS 20

static const char all_free[] = "MemTotal: 16777216 kB\nMemAvailable: 16777216 kB\n";
static const char none_free[] = "MemTotal: 16777216 kB\nMemAvailable: 0 kB\n";

/*
 * The host has 15 GiB left, of which `first` MiB are claimed, and `settled` MiB are claimed and settled. Then
 * the host has none left, but a claim of `second` MiB need not look for a while. Returns whether that was
 * granted; -1: something else had the CPU meanwhile.
 */
static int grants_by_last_look(uint64_t settled, uint64_t first, uint64_t second, unsigned wait_ms)
{
	struct timespec began, now;
	char why[256];
	int rc;

	put("/proc/meminfo", all_free);
	usleep((LOOK_HOLDS_MS + 1) * 1000);
	clock_gettime(CLOCK_MONOTONIC, &began);
	assert_int_equal(host_memory_claim(first * MIB, why, sizeof why), 0);
	assert_int_equal(host_memory_claim(settled * MIB, why, sizeof why), 0);
	host_memory_settle(settled * MIB);
	for (int i = 0; i < 8; i++) /* nothing stays claimed */
		assert_int_equal(host_memory_try(900 * MIB, why, sizeof why), 0);
	put("/proc/meminfo", none_free);
	usleep(wait_ms * 1000);
	rc = host_memory_claim(second * MIB, why, sizeof why);
	clock_gettime(CLOCK_MONOTONIC, &now);
	host_memory_settle((first + (rc == 0 ? second : 0)) * MIB);
	if ((now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000 >=
	    LOOK_HOLDS_MS + wait_ms)
		return -1;
	return rc == 0;
}

static int grants_after(uint64_t settled, uint64_t first, uint64_t second, unsigned wait_ms)
{
	int granted;

	while ((granted = grants_by_last_look(settled, first, second, wait_ms)) < 0) {
	}
	return granted;
}

static int grants(uint64_t first, uint64_t second, unsigned wait_ms)
{
	return grants_after(0, first, second, wait_ms);
}

static void test_a_look_holds_for_a_while(void **state)
{
	char why[256];

	(void)state;
	assert_true(grants(1, 1, 0));
	assert_true(grants(1, 14335, 0)); /* others may take 50 GB/s: a GB in 20 ms, 600 MB in 12 */
	assert_false(grants(1, 14900, 12));
	assert_false(grants(14400, 500, 12));
	assert_false(grants(1, 1, LOOK_HOLDS_MS + 1));
	/* Settled memory is in use by now, or was released before another thread looked: it is no room. */
	assert_true(grants_after(8000, 1, 6000, 0));
	assert_false(grants_after(8000, 1, 8000, 0));
	put("/proc/meminfo", all_free);
	usleep((LOOK_HOLDS_MS + 1) * 1000);
	for (int i = 0; i < 8; i++)
		assert_int_equal(host_memory_try(15000 * MIB, why, sizeof why), 0);
	assert_int_equal(host_memory_try(15361 * MIB, why, sizeof why), KOPS_E_NOMEM);
	assert_int_equal(host_memory_room(), 15360 * MIB);
}

/*
 * At the last look nothing was left, but soon there is. Returns whether that is seen; -1: something else had
 * the CPU.
 */
static int sees(int64_t own_files)
{
	struct timespec began, now;
	char why[256];
	int rc;

	put("/proc/meminfo", none_free);
	usleep((LOOK_HOLDS_MS + 1) * 1000);
	host_memory_add_file(own_files);
	clock_gettime(CLOCK_MONOTONIC, &began);
	assert_int_equal(host_memory_try(1, why, sizeof why), KOPS_E_NOMEM);
	put("/proc/meminfo", all_free);
	host_memory_add_file(-own_files);
	rc = host_memory_try(8000 * MIB, why, sizeof why);
	clock_gettime(CLOCK_MONOTONIC, &now);
	if ((now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000 >= LOOK_HOLDS_MS)
		return -1;
	if (rc < 0)
		assert_non_null(strstr(details, "cannot reserve 8388608000 bytes: the host has 17179869184"));
	return rc == 0;
}

static void test_a_refusal_holds_for_a_while(void **state)
{
	char why[256];
	int seen;

	(void)state;
	while ((seen = sees(0)) < 0) {
	}
	assert_false(seen);
	while ((seen = sees(8000 * MIB)) < 0) {
	}
	assert_true(seen); /* memory that the process gave back itself is known */
	while ((seen = sees(0)) < 0) {
	}
	assert_int_equal(host_memory_claim(8000 * MIB, why, sizeof why), 0); /* a claim is looked for */
	host_memory_settle(8000 * MIB);
}

/* Makes a host whose /proc has only a folder for each process (ProcSubset=pid). */
static void test_without_meminfo(void **state)
{
	char why[256] = "";
	struct sysinfo info;
	uint64_t total;

	(void)state;
	host_memory_set_root("/tmp/kops-host-none");
	assert_int_equal(sysinfo(&info), 0);
	total = (uint64_t)info.totalram * info.mem_unit;
	assert_int_equal(host_memory_total(), total);
	assert_int_equal(host_memory_room(), total - total / 16);
	assert_int_equal(host_memory_claim(total - total / 16, why, sizeof why), 0);
	assert_int_equal(host_memory_claim(1, why, sizeof why), KOPS_E_NOMEM);
	host_memory_settle(total - total / 16);
	assert_int_equal(host_memory_max_mappings(), 65530);
	/* The process's own memory is not free. */
	host_memory_set_root(root);
	put("/proc/meminfo", "MemTotal: 0 kB\n");
	put("/proc/self/statm", "99999 2560 7 7 0 7 0\n");
	assert_int_equal(host_memory_room(), total - total / 16 - 10 * MIB);
	/* A cgroup's limit is known without the host's. */
	put("/proc/self/cgroup", "0::/\n");
	put("/proc/self/mountinfo", "31 22 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
	put("/sys/fs/cgroup/memory.max", "16777216\n");
	put("/sys/fs/cgroup/memory.current", "0\n");
	host_memory_set_root(root);
	assert_int_equal(host_memory_total(), 16 * MIB);
	assert_int_equal(host_memory_room(), 15 * MIB);
}

/* Whichever file cannot be opened for want of descriptors or memory, its limit is not taken as absent. */
static void test_a_file_fails_once(void **state)
{
	unsigned n = 0;

	(void)state;
	put("/proc/self/cgroup", "0::/a\n");
	put("/proc/self/mountinfo", "31 22 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
	put("/proc/sys/vm/max_map_count", "262144\n");
	put("/sys/fs/cgroup/a/memory.max", "16777216\n");
	put("/sys/fs/cgroup/a/memory.current", "2097152\n");
	put("/sys/fs/cgroup/a/memory.stat", "inactive_file 1048576\n");
	do {
		host_memory_set_root(root);
		opens_until_failure = ++n;
		assert_int_equal(host_memory_total(), 16 * MIB);
		assert_int_equal(host_memory_room(), 14 * MIB);
		assert_int_equal(host_memory_max_mappings(), 262144);
	} while (opens_until_failure == 0);
	assert_true(n > 10);
	opens_until_failure = 0;
}

/* The parent's limit is lower. */
static void test_version_2(void **state)
{
	char why[256] = "";

	(void)state;
	put("/proc/self/cgroup", "0::/system.slice/kopsd.service\n");
	put("/proc/self/mountinfo", "22 1 0:1 / / rw - ext4 /dev/a rw\n"
	                            "31 22 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
	put("/sys/fs/cgroup/system.slice/kopsd.service/memory.max", "max\n");
	put("/sys/fs/cgroup/system.slice/kopsd.service/memory.high", "max\n");
	put("/sys/fs/cgroup/system.slice/kopsd.service/memory.current", "1048576\n");
	put("/sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
	put("/sys/fs/cgroup/system.slice/memory.current", "671088640\n");
	put("/sys/fs/cgroup/system.slice/memory.stat", "anon 1\ninactive_file 134217728\nactive_file 7\n");
	assert_int_equal(host_memory_total(), 1024 * MIB);
	assert_int_equal(host_memory_room(), (1024 - 640 + 128 - 64) * MIB);
	assert_int_equal(host_memory_claim(512 * MIB, why, sizeof why), KOPS_E_NOMEM);
	assert_non_null(strstr(details, "/sys/fs/cgroup/system.slice has 1073741824 bytes"));
	/* memory.high throttles above it, so it counts as a limit. */
	put("/sys/fs/cgroup/system.slice/kopsd.service/memory.high", "33554432\n");
	assert_int_equal(host_memory_total(), 32 * MIB);
	assert_int_equal(host_memory_room(), (32 - 1 - 2) * MIB);
	/* If more is in use than allowed, nothing is left. */
	put("/sys/fs/cgroup/system.slice/kopsd.service/memory.current", "99999999\n");
	assert_int_equal(host_memory_room(), 0);
}

/*
 * Version 1, with version 2 mounted beside it without the controller, in a container that sees only its own
 * part.
 */
static void test_version_1_in_a_container(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc/sub\n3:cpuset,memoryx:/wrong\n0::/\n");
	put("/proc/self/mountinfo",
	    "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n"
	    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	    "33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n");
	put("/sys/fs/cgroup/memory/sub/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/sub/memory.usage_in_bytes", "4096\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
	put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100663296\n");
	put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 33554432\n");
	assert_int_equal(host_memory_total(), 256 * MIB);
	assert_int_equal(host_memory_room(), (256 - 96 + 32 - 16) * MIB);
}

/* A cgroup namespace shows paths above it with dots; the mount point is read then. */
static void test_a_path_outside_of_the_mount(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/../../other\n");
	put("/proc/self/mountinfo", "31 22 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
	put("/sys/fs/cgroup/memory.max", "16777216\n");
	put("/sys/fs/cgroup/memory.current", "0\n");
	assert_int_equal(host_memory_total(), 16 * MIB);
	assert_int_equal(host_memory_room(), 15 * MIB);
}

static void test_files_that_say_nothing(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "\n:\nx:y\n0::/a\n");
	put("/proc/self/mountinfo",
	    "\n - \nx - cgroup2\n31 22 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
	put("/sys/fs/cgroup/a/memory.max", "");
	put("/sys/fs/cgroup/a/memory.current", "many\n");
	put("/sys/fs/cgroup/a/memory.stat", "inactive_file\n\n");
	assert_int_equal(host_memory_total(), 16384 * MIB);
	assert_int_equal(host_memory_room(), 7168 * MIB);
}

/* Growth in small pieces is asked for once per MiB, beyond what is free. */
static void test_growth(void **state)
{
	struct host_memory_growth growth = {.free_bytes = 4 * MIB};
	char why[256] = "";

	(void)state;
	assert_int_equal(host_memory_claim(7164 * MIB, why, sizeof why), 0);
	assert_true(host_memory_may_grow(&growth, 4 * MIB + 1));
	host_memory_settle(7164 * MIB);
	assert_int_equal(host_memory_claim(7167 * MIB, why, sizeof why), 0);
	assert_true(host_memory_may_grow(&growth, 5 * MIB + 1));
	assert_false(host_memory_may_grow(&growth, 5 * MIB + 2));
	assert_true(host_memory_may_grow(&growth, 4 * MIB));
	assert_true(host_memory_may_grow(&growth, 1));
	assert_false(host_memory_may_grow(&growth, 5 * MIB)); /* its memory was freed */
	host_memory_settle(7167 * MIB);
	assert_int_equal(host_memory_room(), 7168 * MIB);
}

/* Makes a memfd whose first bytes have pages. */
static int make_file(uint64_t bytes, uint64_t there)
{
	int fd = memfd_create("kops-test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(there ? fallocate(fd, 0, 0, (off_t)there) : 0, 0);
	return fd;
}

static void punch(int fd, uint64_t offset, uint64_t bytes)
{
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes),
	                 0);
}

static void test_missing_pages(void **state)
{
	int fd = make_file(4 * MIB, 3 * MIB);

	(void)state;
	assert_int_equal(host_memory_missing(fd, 4 * MIB), MIB);
	/* All pages may lie in the part in question. */
	assert_int_equal(host_memory_missing(fd, 2 * MIB), MIB);
	assert_int_equal(host_memory_missing(fd, 4096), 4096);
	punch(fd, 0, 3 * MIB);
	assert_int_equal(host_memory_missing(fd, 4 * MIB), 4 * MIB);
	close(fd);
	assert_int_equal(host_memory_missing(fd, 4 * MIB), 0);
	fd = make_file(10, 10); /* less than its page */
	assert_int_equal(host_memory_missing(fd, 10), 0);
	close(fd);
}

/* Existing pages count once; promised again as soon as they are gone. */
static void test_pages_with_holes(void **state)
{
	struct host_memory_pages pages = {.fd = make_file(64 * MIB, 64 * MIB)};
	char why[256] = "";

	(void)state;
	assert_int_equal(host_memory_claim_pages(&pages, 48 * MIB), 0);
	assert_int_equal(host_memory_room(), 7168 * MIB);
	punch(pages.fd, 0, 32 * MIB);
	assert_int_equal(host_memory_room(), (7168 - 32) * MIB);
	punch(pages.fd, 0, 64 * MIB);
	assert_int_equal(host_memory_room(), (7168 - 48) * MIB);
	assert_int_equal(host_memory_claim(7120 * MIB + 1, why, sizeof why), KOPS_E_NOMEM);
	assert_non_null(strstr(details, " 50331648 reserved for others)"));
	assert_int_equal(host_memory_claim(7120 * MIB, why, sizeof why), 0);
	assert_int_equal(host_memory_check(0, why, sizeof why), 0);
	assert_int_equal(host_memory_claim_pages(&pages, 49 * MIB), MIB);
	assert_int_equal(host_memory_check(MIB, why, sizeof why), KOPS_E_NOMEM);
	assert_int_equal(host_memory_claim_pages(&pages, 40 * MIB), 0); /* fewer than before */
	assert_int_equal(host_memory_claim_pages(&pages, 0), 0);
	assert_int_equal(host_memory_check(0, why, sizeof why), 0);
	host_memory_settle(7120 * MIB);
	assert_int_equal(host_memory_room(), 7168 * MIB);
	close(pages.fd);
}

/* Pages of others count for the host, which has them, but not for a cgroup that may be charged for them. */
static void test_foreign_pages(void **state)
{
	struct host_memory_pages first = {.fd = make_file(64 * MIB, 64 * MIB), .is_foreign = true};
	struct host_memory_pages second = {.fd = make_file(8 * MIB, 0), .is_foreign = true};

	(void)state;
	host_memory_room(); /* from here on it is known that no cgroup has a limit */
	assert_int_equal(host_memory_claim_pages(&first, 64 * MIB), 0);
	assert_int_equal(host_memory_claim_pages(&second, 8 * MIB), 8 * MIB);
	assert_int_equal(host_memory_room(), (7168 - 8) * MIB);
	put("/proc/self/cgroup", "0::/\n");
	put("/proc/self/mountinfo", "31 22 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
	put("/sys/fs/cgroup/memory.max", "1073741824\n");
	put("/sys/fs/cgroup/memory.current", "0\n");
	host_memory_set_root(root); /* cgroups are read once a second */
	assert_int_equal(host_memory_room(), (1024 - 64 - 72) * MIB);
	host_memory_claim_pages(&first, 0);
	assert_int_equal(host_memory_claim_pages(&first, 64 * MIB), 64 * MIB);
	/*
	 * The cgroup has 70 MiB of shared memory, of which at most 8 MiB can be of files that were not claimed.
	 */
	host_memory_add_file(80 * MIB);
	put("/sys/fs/cgroup/memory.current", "73400320\n");
	put("/sys/fs/cgroup/memory.stat", "anon 1\nshmem 73400320\n");
	assert_int_equal(host_memory_room(), (1024 - 64 - 70 - (72 - 62)) * MIB);
	punch(first.fd, 0, 32 * MIB);
	assert_int_equal(host_memory_room(), (1024 - 64 - 70 - 40) * MIB);
	put("/sys/fs/cgroup/memory.stat", "anon 1\nshmem 4096\n");
	assert_int_equal(host_memory_room(), (1024 - 64 - 70 - 72) * MIB);
	put("/sys/fs/cgroup/memory.current", "0\n");
	host_memory_add_file(-(int64_t)(80 * MIB));
	host_memory_claim_pages(&first, 0);
	assert_int_equal(host_memory_room(), (1024 - 64 - 8) * MIB);
	host_memory_claim_pages(&second, 0);
	assert_int_equal(host_memory_room(), (1024 - 64) * MIB);
	close(first.fd);
	close(second.fd);
}

static void test_address_space(void **state)
{
	char why[256] = "";
	(void)state;

	assert_int_equal(host_memory_try_map(1 << 20, why, sizeof why), 0);
	assert_string_equal(why, "");
	assert_int_equal(host_memory_try_map(1ull << 62, why, sizeof why), KOPS_E_NOMEM);
	assert_non_null(strstr(why, "4611686018427387904 bytes of address space"));
}

/* Mapped memory counts, touched or not, and a sixteenth stays free. */
static void test_limited_address_space(void **state)
{
	struct rlimit before, limit;
	char why[256] = "";

	(void)state;
#ifdef KOPS_SANITIZE
	skip(); /* sanitizers map terabytes */
#endif
	put("/proc/self/statm", "262144 1 1 1 0 1 0\n");
	assert_int_equal(host_memory_may_map(1ull << 62, why, sizeof why),
	                 0); /* without a limit it is not read */
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	limit = (struct rlimit){.rlim_cur = 4096 * MIB, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	assert_int_equal(host_memory_room(), (4096 - 1024 - 256) * MIB);
	assert_int_equal(host_memory_may_map(2816 * MIB, why, sizeof why), 0);
	assert_int_equal(host_memory_may_map(2816 * MIB + 1, why, sizeof why), KOPS_E_NOMEM);
	assert_non_null(strstr(why, "cannot reserve 2952790017 bytes of address space"));
	assert_null(strstr(why, "4294967296")); /* clients must not learn how much there is */
	assert_non_null(strstr(details, "has 4294967296 bytes, 3221225472 free (268435456 kept free"));
	assert_int_equal(host_memory_claim(2816 * MIB, why, sizeof why), 0);
	assert_int_equal(host_memory_claim(1, why, sizeof why), KOPS_E_NOMEM);
	assert_non_null(strstr(details, "the address space (ulimit -v, LimitAS) has 4294967296 bytes"));
	host_memory_settle(2816 * MIB);
	setrlimit(RLIMIT_AS, &before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_host_without_cgroups, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_what_was_claimed_is_not_there_for_others, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_look_holds_for_a_while, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_refusal_holds_for_a_while, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_without_meminfo, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_file_fails_once, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_version_2, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_version_1_in_a_container, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_path_outside_of_the_mount, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_files_that_say_nothing, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_growth, set_up, tear_down),
	    cmocka_unit_test(test_missing_pages),
	    cmocka_unit_test_setup_teardown(test_pages_with_holes, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_foreign_pages, set_up, tear_down),
	    cmocka_unit_test(test_address_space),
	    cmocka_unit_test_setup_teardown(test_limited_address_space, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
