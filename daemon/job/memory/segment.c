#include "job/memory/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core_dump.h"

struct segment *segment_new(struct pool *pool, const struct driver *pinning, uint64_t bytes)
{
	struct segment *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->pool = pool;
	s->pinning = pinning;
	s->fd = -1;
	s->map = MAP_FAILED;
	s->bytes = bytes;
	return s;
}

static uint64_t next_piece(const struct segment *s, uint64_t most)
{
	uint64_t left = s->bytes - s->at;

	return left < most ? left : most;
}

static void unpin_segment(struct segment *s)
{
	if (s->pinned)
		s->pinning->unpin(s->map, s->bytes);
	s->pinned = false;
}

void segment_unmake(struct segment *s)
{
	unpin_segment(s);
	if (s->map != MAP_FAILED)
		munmap(s->map, s->bytes);
	s->map = MAP_FAILED;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	host_memory_settle(s->claimed_bytes);
	s->claimed_bytes = 0;
}

static int fail_to_make(struct segment *s, const char *what)
{
	const char *advice = errno == EMFILE || errno == ENFILE ? "; raise LimitNOFILE"
	                     : errno == EFBIG                   ? "; raise LimitFSIZE"
	                                                        : "";

	snprintf(s->why, sizeof s->why, "kopsd cannot create shared memory of %llu bytes: %s: %s%s",
	         (unsigned long long)s->bytes, what, strerror(errno), advice);
	return KOPS_E_NOMEM;
}

/* ---- Files and mappings ---- */

static int open_again(int fd)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

int segment_open_again(const struct segment *s)
{
	return open_again(s->fd);
}

int segment_map(const struct segment *s, void **ret)
{
	void *map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);

	if (map == MAP_FAILED)
		return KOPS_E_NOMEM;
	core_dump_exclude(map, s->bytes);
	*ret = map;
	return 0;
}

/* ---- Steps ---- */

/* Makes the file and reopens it, so that the lease counts no other opens. If somebody opens the file during a
 * check, the signal is SIGURG, which is ignored; SIGIO would end the process. */
static int begin_file(struct segment *s)
{
	int made, rc = host_memory_claim(s->bytes, s->why, sizeof s->why);

	if (rc < 0)
		return rc;
	s->claimed_bytes = s->bytes;
	made = memfd_create("kops", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (made < 0)
		return fail_to_make(s, "memfd_create");
	s->fd = open_again(made);
	if (s->fd < 0) {
		rc = fail_to_make(s, "opening /proc/self/fd");
		close(made);
		return rc;
	}
	close(made);
	fcntl(s->fd, F_SETSIG, SIGURG);
	return ftruncate(s->fd, (off_t)s->bytes) < 0 ? fail_to_make(s, "ftruncate") : 0;
}

/* Makes a piece of zeroed pages. fallocate reports a full tmpfs or memory cgroup, where touching would raise
 * SIGBUS. */
static int make_piece(struct segment *s)
{
	uint64_t bytes = next_piece(s, WORKERS_PIECE_BYTES);
	int rc;

	do
		rc = fallocate(s->fd, 0, (off_t)s->at, (off_t)bytes);
	while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return fail_to_make(s, "fallocate");
	s->at += bytes;
	s->claimed_bytes -= bytes;
	host_memory_settle(bytes);
	return 0;
}

static int finish_file(struct segment *s)
{
	if (fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return fail_to_make(s, "sealing");
	if (segment_map(s, &s->map) < 0)
		return fail_to_make(s, "mmap");
	if (s->pin)
		s->pinned = s->pinning->pin(s->map, s->bytes, false) == 0; /* unpinned memory works, slower */
	return 0;
}

bool segment_make_step(struct task *task)
{
	struct segment *s = segment_of_task(task);

	s->status = s->fd < 0 ? begin_file(s) : 0;
	if (s->status == 0)
		s->status = make_piece(s);
	if (s->status == 0 && s->at == s->bytes)
		s->status = finish_file(s);
	if (s->status < 0)
		segment_unmake(s);
	return s->status < 0 || s->at == s->bytes;
}

bool segment_zero_step(struct task *task)
{
	struct segment *s = segment_of_task(task);
	uint64_t bytes = next_piece(s, WORKERS_PIECE_BYTES);

	memset((char *)s->map + s->at, 0, bytes);
	s->at += bytes;
	return s->at == s->bytes;
}

/* Frees the pages too: a client may have kept the descriptor, and with it pages that nobody counts. */
bool segment_discard_step(struct task *task)
{
	struct segment *s = segment_of_task(task);
	uint64_t bytes = next_piece(s, WORKERS_UNMAKE_BYTES);

	unpin_segment(s);
	if (s->fd >= 0 &&
	    fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->at, (off_t)bytes) == 0)
		s->at += bytes;
	else
		s->at = s->bytes; /* there is no file, or closing it frees the pages */
	if (s->at < s->bytes)
		return false;
	segment_unmake(s);
	return true;
}

/* Unmaps a piece; the content stays. */
bool segment_unmap_step(struct task *task)
{
	struct segment *s = segment_of_task(task);
	uint64_t bytes = next_piece(s, WORKERS_UNMAKE_BYTES);

	unpin_segment(s);
	munmap((char *)s->map + s->at, bytes);
	s->at += bytes;
	if (s->at < s->bytes)
		return false;
	s->map = MAP_FAILED;
	return true;
}
