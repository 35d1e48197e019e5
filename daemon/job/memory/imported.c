/* imported.c: buffers of memfds that clients made, or were lent in an earlier session. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core_dump.h"
#include "job/engine.h"
#include "job/memory/buffer.h"
#include "share/closing.h"

/* Closing a file may free its pages. A thread that nobody's memory waits for closes larger files. */
#define CLOSE_BYTES (1ull << 20)

/* ---- Memory that goes ---- */

static void unpin(struct buffer *b)
{
	if (__atomic_load_n(&b->memory.pin, __ATOMIC_ACQUIRE) == MEMORY_PINNED)
		b->engine->pinning->unpin(b->memory.host, b->memory.bytes);
}

static bool unmap_import(struct task *task)
{
	struct buffer *b = buffer_of_task(task);

	if (b->at == 0)
		unpin(b);
	if (!buffer_unmap_piece(b, b->memory.host, b->map_bytes))
		return false;
	if (b->file_bytes <= CLOSE_BYTES) {
		close(b->fd);
		b->fd = -1;
	}
	return true;
}

static void unmapped(struct task *task)
{
	struct buffer *b = buffer_of_task(task);

	host_memory_add_file(-(int64_t)b->map_bytes);
	buffer_gone(b);
}

static void unmap(struct buffer *b)
{
	buffer_unmap(b, unmap_import, unmapped);
}

static const struct buffer_kind imported = {.account = ACCOUNT_MAPPED, .release = unmap};

/* ---- Import ---- */

/* What the daemon needs to know of a memfd. */
struct file {
	struct stat st;
	uint64_t map_bytes;
	bool read_only;
	bool may_get_holes;
};

/*
 * Only a memfd that can never shrink is safe to map: a truncated file would kill us with SIGBUS. Huge
 * page memfds are refused for the same reason: after PUNCH_HOLE their next fault may find no page.
 */
static int inspect(int fd, uint64_t bytes, struct file *ret, char why[WHY_BYTES])
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	const int unwritable = F_SEAL_WRITE | 0x0010 /* F_SEAL_FUTURE_WRITE */;
	int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
	struct statfs fs;
	uint64_t page;

	if (seals < 0 || flags < 0 || fstat(fd, &ret->st) < 0 || fstatfs(fd, &fs) < 0) {
		snprintf(why, WHY_BYTES, "the descriptor is not a memfd (%s); make one with memfd_create()",
		         strerror(errno));
		return KOPS_E_FD;
	}
	if ((seals & needed) != needed) {
		snprintf(why, WHY_BYTES,
		         "the memfd lacks%s%s%s; add the seals with fcntl(fd, F_ADD_SEALS, …) first",
		         seals & F_SEAL_SHRINK ? "" : " F_SEAL_SHRINK",
		         seals & F_SEAL_GROW ? "" : " F_SEAL_GROW", seals & F_SEAL_SEAL ? "" : " F_SEAL_SEAL");
		return KOPS_E_FD;
	}
	if (fs.f_type != TMPFS_MAGIC || !S_ISREG(ret->st.st_mode)) {
		snprintf(why, WHY_BYTES,
		         "the descriptor is not an ordinary memfd (huge pages are not accepted)");
		return KOPS_E_FD;
	}
	if (ret->st.st_size < 0 || bytes > (uint64_t)ret->st.st_size) {
		snprintf(why, WHY_BYTES, "the memfd has %" PRId64 " bytes, expected at least %" PRIu64,
		         (int64_t)ret->st.st_size, bytes);
		return KOPS_E_FD;
	}
	if ((flags & O_ACCMODE) == O_WRONLY) {
		snprintf(why, WHY_BYTES, "the descriptor is write-only");
		return KOPS_E_FD;
	}
	ret->read_only = (flags & O_ACCMODE) == O_RDONLY || (seals & unwritable);
	ret->may_get_holes = !(seals & unwritable);
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	ret->map_bytes = (bytes + page - 1) / page * page;
	return 0;
}

/* Takes over fd. Missing pages have to fit in memory, since jobs will touch them. */
static int map_import(struct buffer *b, int fd, const struct file *file, char why[WHY_BYTES])
{
	uint64_t missing;
	int rc = buffer_charge(b, file->map_bytes, why);

	b->fd = fd;
	b->file_bytes = (uint64_t)file->st.st_size;
	if (rc < 0)
		return rc;
	missing = b->memory.missing_bytes = host_memory_missing(fd, file->map_bytes);
	b->pages.fd = fd;
	b->pages.is_foreign = file->may_get_holes;
	if (missing && !engine_memory_is_ample(b->engine))
		rc = host_memory_try(missing, why, WHY_BYTES); /* each job claims the pages that it touches */
	if (rc == 0)
		rc = host_memory_may_map(file->map_bytes, why, WHY_BYTES);
	if (rc < 0)
		return rc;
	b->memory.host = mmap(NULL, file->map_bytes, b->memory.read_only ? PROT_READ : PROT_READ | PROT_WRITE,
	                      MAP_SHARED, fd, 0);
	if (b->memory.host == MAP_FAILED) {
		snprintf(why, WHY_BYTES, "cannot map the memfd: %s", strerror(errno));
		return errno == ENOMEM ? KOPS_E_NOMEM : KOPS_E_FD;
	}
	b->map_bytes = file->map_bytes;
	core_dump_exclude(b->memory.host, b->map_bytes);
	host_memory_add_file((int64_t)b->map_bytes);
	return 0;
}

/* Takes over fd. */
static int map_kept_or_import(struct buffer *b, int fd, const struct file *file, char why[WHY_BYTES])
{
	struct segment *kept;
	int rc = pool_adopt(b->engine->pool, b->account, file->st.st_dev, file->st.st_ino, &kept);

	if (rc < 0) {
		b->fd = fd;
		snprintf(why, WHY_BYTES, "kopsd cannot map the memfd again: %s", strerror(ENOMEM));
		return rc;
	}
	if (!kept)
		return map_import(b, fd, file, why);
	close(fd);
	return buffer_lend_kept(b, kept, why);
}

bool buffer_is_kept(const struct engine *engine, const struct account *account, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && pool_keeps(engine->pool, account, st.st_dev, st.st_ino);
}

int buffer_import(struct engine *engine, struct account *account, int fd, uint64_t bytes, bool read_only,
                  struct buffer **ret_buffer, char why[WHY_BYTES])
{
	struct buffer *b;
	struct file file;
	int rc = inspect(fd, bytes, &file, why);

	if (rc < 0) {
		closing_add(&engine->accounts, account, fd);
		return rc;
	}
	b = buffer_new(&imported, engine, account, bytes);
	if (!b) {
		snprintf(why, WHY_BYTES, "kopsd is out of memory");
		closing_add(&engine->accounts, account, fd);
		return KOPS_E_NOMEM;
	}
	b->memory.read_only = read_only || file.read_only;
	rc = map_kept_or_import(b, fd, &file, why);
	if (rc < 0) {
		buffer_delete(b);
		return rc;
	}
	b->state = BUFFER_READY;
	*ret_buffer = b;
	return 0;
}
