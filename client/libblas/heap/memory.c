/* memory.c: memfds, and how they are mapped. */
#include "heap/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define FIRST_FD     3   /* below are standard input, output and error, open or not */
#define SECTOR_BYTES 512 /* unit of st_blocks */
#define FEW          16  /* a block may lack this part of its pages, such as the rest of the last */

uint64_t memory_page_bytes(void)
{
	static _Atomic uint64_t page;
	if (page == 0)
		page = (uint64_t)sysconf(_SC_PAGESIZE);
	return page;
}

/* Returns 0 if there is no such number. */
static uint64_t round_up(uint64_t bytes, uint64_t step)
{
	return bytes <= PTRDIFF_MAX - step ? (bytes + step - 1) / step * step : 0;
}

/* ---- The file ---- */

static bool is_ours(const struct memory *m)
{
	struct stat st;
	return m->fd >= 0 && fstat(m->fd, &st) == 0 && st.st_dev == m->device && st.st_ino == m->inode;
}

void memory_close(struct memory *m)
{
	if (is_ours(m))
		close(m->fd);
	m->fd = -1;
}

/* A longer file than RLIMIT_FSIZE allows would cost a signal. */
static bool set_size(int fd, uint64_t bytes)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes))
		return false;
	return ftruncate(fd, (off_t)bytes) == 0;
}

static int open_file(void)
{
	int fd = memfd_create("malloc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || fd >= FIRST_FD)
		return fd;
	int higher = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD);
	close(fd);
	return higher;
}

static bool make_file(struct memory *m)
{
	struct stat st;
	m->fd = open_file();
	if (m->fd < 0)
		return false;
	if (set_size(m->fd, m->bytes) && fstat(m->fd, &st) == 0) {
		m->device = st.st_dev;
		m->inode = st.st_ino;
		return true;
	}
	close(m->fd);
	return false;
}

/* ---- The mapping ---- */

static bool map_over(const struct memory *m, int flags)
{
	return mmap(m->base, m->bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, m->fd, 0) != MAP_FAILED;
}

static void unmap(char *from, const char *to)
{
	if (to > from)
		munmap(from, (size_t)(to - from));
}

/*
 * Reserves ordinary memory first: the kernel refuses what malloc() would be refused, where it would grant any
 * size of a file.
 */
bool memory_make(struct memory *ret, uint64_t bytes, uint64_t align)
{
	struct memory m = {.bytes = round_up(bytes, memory_page_bytes())};
	uint64_t spare = align > memory_page_bytes() ? align : 0;
	if (m.bytes == 0 || spare > PTRDIFF_MAX - m.bytes)
		return false;
	uint64_t room = m.bytes + spare;
	char *reserved = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (reserved == MAP_FAILED)
		return false;
	m.base = reserved;
	if (spare)
		m.base += -(uintptr_t)reserved % align;
	if (!make_file(&m))
		goto unmap;
	if (!map_over(&m, MAP_SHARED) || madvise(m.base, m.bytes, MADV_DONTFORK) < 0)
		goto close;
	unmap(reserved, m.base);
	unmap(m.base + m.bytes, reserved + room);
	*ret = m;
	return true;
close:
	close(m.fd);
unmap:
	munmap(reserved, room);
	return false;
}

void memory_free(struct memory *m)
{
	munmap(m->base, m->bytes);
	memory_close(m);
}

static bool is_more_than_there_is(uint64_t bytes)
{
	long pages = sysconf(_SC_PHYS_PAGES);
	return pages > 0 && bytes / memory_page_bytes() > (uint64_t)pages;
}

/* A file is never shorter than its mapping. */
bool memory_resize(struct memory *m, uint64_t bytes)
{
	bytes = round_up(bytes, memory_page_bytes());
	bool grows = bytes > m->bytes;
	if (bytes == 0 || is_more_than_there_is(bytes) || !is_ours(m) || (grows && !set_size(m->fd, bytes)))
		return false;
	void *base = mremap(m->base, m->bytes, bytes, MREMAP_MAYMOVE);
	if (base == MAP_FAILED) {
		if (grows)
			set_size(m->fd, m->bytes);
		return false;
	}
	if (!grows)
		set_size(m->fd, bytes);
	m->base = base;
	m->bytes = bytes;
	return true;
}

/* ---- Sharing ---- */

int memory_seal(struct memory *m, uint64_t wanted_bytes)
{
	struct stat st;
	if (!is_ours(m) || fstat(m->fd, &st) < 0)
		return -1;
	if ((uint64_t)st.st_blocks * SECTOR_BYTES + wanted_bytes < m->bytes - m->bytes / FEW)
		return -1;
	if (fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 &&
	    (errno != EPERM || (fcntl(m->fd, F_GET_SEALS) & F_SEAL_SEAL) == 0))
		return -1;
	return fcntl(m->fd, F_DUPFD_CLOEXEC, FIRST_FD);
}

/* Kernels before 5.14 refuse the advice; kopsd then gets the pages. */
bool memory_populate(const void *base, uint64_t bytes)
{
	return madvise((void *)(uintptr_t)base, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

/* The descriptor is lost. What another thread stores meanwhile may be lost, too. */
static bool copy_to_private(struct memory *m)
{
	void *copy =
	    mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (copy == MAP_FAILED)
		return false;
	memcpy(copy, m->base, m->bytes);
	if (mremap(copy, m->bytes, m->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, m->base) != MAP_FAILED)
		return true;
	munmap(copy, m->bytes);
	return false;
}

bool memory_make_private(struct memory *m)
{
	bool made = is_ours(m) ? map_over(m, MAP_PRIVATE | MAP_NORESERVE) : copy_to_private(m);
	if (made)
		memory_close(m);
	return made;
}

/* Adds nothing to a byte of each page. Not even a compiler knows that it is nothing. */
void memory_touch(void *memory, uint64_t bytes)
{
	static volatile unsigned char nothing;
	char *end = (char *)memory + bytes;
	uint64_t page = memory_page_bytes();
	for (char *at = memory; at < end; at += page - (uintptr_t)at % page)
		__atomic_fetch_add((unsigned char *)at, nothing, __ATOMIC_RELAXED);
}
