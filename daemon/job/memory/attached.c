/* attached.c: buffers of sessions whose memory is a published buffer's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job/memory/buffer.h"

/* F_SEAL_WRITE and F_SEAL_FUTURE_WRITE: nobody can make a writable mapping any more. */
#define UNWRITABLE (F_SEAL_WRITE | 0x0010)

/* ---- Attachments ---- */

static void detach(struct buffer *b)
{
	b->of->n_attached--;
	buffer_unref(b->of);
	buffer_gone(b);
}

static const struct buffer_kind attached = {.account = ACCOUNT_MAPPED, .release = detach};

struct buffer *buffer_attach(struct buffer *published, struct account *account)
{
	struct buffer *b = buffer_new(&attached, published->engine, account, published->memory.bytes);

	PRE(published->state == BUFFER_READY && published->of == published);
	if (!b)
		return NULL;
	b->memory.read_only = true;
	b->of = published;
	published->refs++;
	published->n_attached++;
	b->state = BUFFER_READY;
	return b;
}

/* ---- Descriptors for others ---- */

/* Takes from all but the file's owner the right to write it, which a path in /proc would give them. */
static int close_to_others(int fd)
{
	struct stat st;

	if (fchmod(fd, S_IRUSR | S_IWUSR) == 0)
		return 0;
	return fstat(fd, &st) == 0 && !(st.st_mode & (S_IWGRP | S_IWOTH)) ? 0 : -1;
}

int buffer_guard(struct buffer *b, char why[WHY_BYTES])
{
	int fd = b->pages.fd, rc;

	if (b->segment)
		b->segment->others_have = true;
	if (!(fcntl(fd, F_GET_SEALS) & UNWRITABLE) && close_to_others(fd) < 0) {
		snprintf(
		    why, WHY_BYTES,
		    "others could open the memfd for writing, and kopsd cannot forbid it (%s); allocate the "
		    "memory from kopsd, add F_SEAL_FUTURE_WRITE, or fchmod() it to 0644",
		    strerror(errno));
		return KOPS_E_FD;
	}
	rc = buffer_open_for_reading(b);
	if (rc < 0) {
		snprintf(why, WHY_BYTES, "kopsd cannot open the memfd for reading: %s", strerror(errno));
		return KOPS_E_FD;
	}
	close(rc);
	return 0;
}

int buffer_open_for_reading(const struct buffer *b)
{
	char path[32];
	int fd;

	snprintf(path, sizeof path, "/proc/self/fd/%d", b->pages.fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? KOPS_E_NOMEM : fd;
}
