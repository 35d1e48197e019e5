#include "device/marks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

#define MAGIC      0x6b6f70736d61726bu /* "kopsmark" */
#define VERSION    1u
#define SLOTS      1024u /* several times the number of jobs that devices can have at once */
#define PROBES     16u
#define FORGET_S   3600
#define HASH_BASIS 0xcbf29ce484222325u /* FNV-1a, 64 bits */
#define HASH_PRIME 0x100000001b3u

struct mark {
	uint64_t shape;
	uint32_t uid;
	uint16_t at_work; /* jobs that devices have */
	uint8_t lasting;  /* some of these have run for MARKS_LASTING_MS */
	uint8_t deaths;
	int64_t died_s; /* time of the last death, by CLOCK_BOOTTIME: the file does not outlast a boot */
};

struct file {
	uint64_t magic;
	uint32_t version, slots;
	uint32_t crashed; /* set by marks_note_crash() */
	uint32_t unused;
	struct mark marks[SLOTS];
};

struct marks {
	struct file *file;
	unsigned with_deaths; /* marks with deaths; usually 0, which saves the lookup */
};

static int64_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec;
}

/* ---- Shapes ---- */

static uint64_t add_bytes(uint64_t hash, const void *data, size_t n)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ bytes[i]) * HASH_PRIME;
	return hash;
}

/* Hashes word by word, which spreads bits less than byte by byte, but enough. */
static uint64_t hash_word(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * HASH_PRIME;
	return hash ^ hash >> 29;
}

static uint64_t add_view(uint64_t hash, const struct view *v)
{
	hash = hash_word(hash, (uint64_t)v->dtype << 8 | v->rank);
	for (uint32_t d = 0; d < v->rank; d++)
		hash = hash_word(hash_word(hash, v->shape[d]), (uint64_t)v->strides[d]);
	return hash;
}

uint64_t marks_shape(const struct run *run)
{
	uint64_t hash = HASH_BASIS;

	for (unsigned i = 0; i < run->n_ops; i++) {
		const struct run_op *op = &run->ops[i];

		hash = add_bytes(hash, op->args.op->name, strlen(op->args.op->name));
		hash = add_bytes(hash, op->kernel->name, strlen(op->kernel->name));
		for (unsigned v = 0; v < op->args.op->n_operands; v++)
			hash = add_view(hash, &op->args.views[v]);
	}
	return hash ? hash : 1; /* 0 marks a free slot */
}

/* ---- Slots ---- */

static struct mark *probe(const struct marks *marks, uint64_t shape, unsigned i)
{
	return &marks->file->marks[(shape + i) % SLOTS];
}

static struct mark *find_mark(const struct marks *marks, uid_t uid, uint64_t shape)
{
	for (unsigned i = 0; i < PROBES; i++) {
		struct mark *m = probe(marks, shape, i);
		if (m->shape == shape && m->uid == uid)
			return m;
	}
	return NULL;
}

/* Takes a slot that is free, or whose job no device has. NULL: the job is not marked. */
static struct mark *take_slot(struct marks *marks, uint64_t shape)
{
	struct mark *idle = NULL;

	for (unsigned i = 0; i < PROBES; i++) {
		struct mark *m = probe(marks, shape, i);
		if (m->shape == 0)
			return m;
		if (!m->at_work && (!idle || m->died_s < idle->died_s))
			idle = m;
	}
	if (idle && idle->deaths)
		marks->with_deaths--;
	return idle;
}

static void free_slot(struct mark *m)
{
	*m = (struct mark){0};
}

unsigned marks_deaths(const struct marks *marks, uid_t uid, uint64_t shape)
{
	const struct mark *m;

	if (!marks || !marks->with_deaths)
		return 0;
	m = find_mark(marks, uid, shape);
	return m && now_s() - m->died_s < FORGET_S ? m->deaths : 0;
}

void marks_set(struct marks *marks, uid_t uid, uint64_t shape)
{
	struct mark *m;

	if (!marks)
		return;
	m = find_mark(marks, uid, shape);
	if (!m) {
		m = take_slot(marks, shape);
		if (!m)
			return;
		*m = (struct mark){.shape = shape, .uid = uid};
	}
	if (m->at_work < UINT16_MAX)
		m->at_work++;
}

static void forgive(struct marks *marks, struct mark *m)
{
	if (m->deaths)
		marks->with_deaths--;
	m->deaths = 0;
}

void marks_unset(struct marks *marks, uid_t uid, uint64_t shape, bool forgiven)
{
	struct mark *m = marks ? find_mark(marks, uid, shape) : NULL;

	if (!m)
		return;
	if (forgiven)
		forgive(marks, m);
	if (m->at_work > 0)
		m->at_work--;
	if (m->at_work)
		return;
	m->lasting = 0;
	if (!m->deaths)
		free_slot(m);
}

void marks_set_lasting(struct marks *marks, uid_t uid, uint64_t shape)
{
	struct mark *m = marks ? find_mark(marks, uid, shape) : NULL;

	if (m)
		m->lasting = 1;
}

void marks_note_crash(struct marks *marks)
{
	if (marks)
		marks->file->crashed = 1;
}

/* ---- The file ---- */

static bool is_ours(const struct file *file)
{
	return file->magic == MAGIC && file->version == VERSION && file->slots == SLOTS;
}

static void begin_anew(struct file *file)
{
	memset(file, 0, sizeof *file);
	file->magic = MAGIC;
	file->version = VERSION;
	file->slots = SLOTS;
}

static void tell_death(const struct mark *m)
{
	if (m->deaths < MARKS_DEATHS_MAX)
		log_notice("a job of uid %u was running when kopsd crashed; this user's jobs of that shape run "
		           "alone until one finishes, for at most an hour",
		           (unsigned)m->uid);
	else
		log_notice("a job of uid %u was running at the last %u crashes of kopsd; this user's jobs of "
		           "that shape are refused for an hour (INTERRUPTED)",
		           (unsigned)m->uid, m->deaths);
}

/* Counts a death of each job that the previous kopsd left marked. */
static void count_deaths(struct marks *marks)
{
	int64_t now = now_s();

	for (unsigned i = 0; i < SLOTS; i++) {
		struct mark *m = &marks->file->marks[i];

		if (m->shape && m->at_work && (m->lasting || marks->file->crashed)) {
			m->deaths = m->deaths < UINT8_MAX ? (uint8_t)(m->deaths + 1) : m->deaths;
			m->died_s = now;
			tell_death(m);
		} else if (now - m->died_s >= FORGET_S || m->died_s > now) {
			m->deaths = 0;
		}
		m->at_work = m->lasting = 0;
		if (!m->deaths)
			free_slot(m);
		else
			marks->with_deaths++;
	}
	marks->file->crashed = 0;
}

/* Gives our regular file its size, and allocates it. 0 or an errno. */
static int make_room_for_marks(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return EPERM;
	if (st.st_size != sizeof(struct file) && ftruncate(fd, sizeof(struct file)) < 0)
		return errno;
	return posix_fallocate(fd, 0, sizeof(struct file));
}

static int open_marks_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600), error;

	if (fd < 0)
		return -1;
	error = make_room_for_marks(fd);
	if (!error)
		return fd;
	close(fd);
	errno = error;
	return -1;
}

struct marks *marks_open(const char *path, char why[WHY_BYTES])
{
	struct marks *marks = calloc(1, sizeof *marks);
	int fd = marks ? open_marks_file(path) : -1;
	void *map =
	    fd >= 0 ? mmap(NULL, sizeof(struct file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (fd >= 0)
		close(fd);
	if (map == MAP_FAILED) {
		snprintf(why, WHY_BYTES,
		         "cannot use %.150s: %s; after a crash kopsd will not know which jobs were running",
		         path, strerror(errno));
		free(marks);
		return NULL;
	}
	marks->file = map;
	if (!is_ours(marks->file))
		begin_anew(marks->file);
	count_deaths(marks);
	return marks;
}

void marks_close(struct marks *marks)
{
	if (!marks)
		return;
	for (unsigned i = 0; i < SLOTS; i++)
		marks->file->marks[i].at_work = marks->file->marks[i].lasting = 0;
	munmap(marks->file, sizeof *marks->file);
	free(marks);
}
