#include "files/source.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "dtype.h"
#include "files/element.h"
#include "files/foreign.h"
#include "files/npy.h"
#include "files/transfer.h"

static int read_npy(struct source *s, const unsigned char *head, size_t len, uint64_t file_bytes, char *why)
{
	struct npy_header h;

	if (npy_parse(head, len, &h, why) < 0)
		return why_invalid(why, "cannot use %s: %s", s->path, why);
	if (h.bytes != file_bytes - h.offset)
		return why_invalid(
		    why, "%s is %s: it has %" PRIu64 " bytes of elements; its header needs %" PRIu64, s->path,
		    h.bytes > file_bytes - h.offset ? "cut short" : "too long", file_bytes - h.offset, h.bytes);
	s->npy = true;
	s->fortran = h.fortran;
	s->is_untyped = h.is_untyped;
	s->is_swapped = h.is_swapped;
	s->dtype = h.dtype;
	s->rank = h.rank;
	memcpy(s->shape, h.shape, sizeof(s->shape));
	s->offset = h.offset;
	s->bytes = h.bytes;
	return 0;
}

static int inspect(struct source *s, char *why)
{
	unsigned char head[NPY_HEADER_MAX];
	struct stat st;

	if (fstat(s->fd, &st) < 0)
		return why_invalid(why, "cannot read %s: %s", s->path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return why_invalid(why, "cannot read %s: it is a directory", s->path);
	if (!S_ISREG(st.st_mode))
		return why_invalid(why, "cannot read %s: its size is unknown; save it to a file and name that",
		                   s->path);
	size_t n = transfer_read(s->fd, s->path, head, sizeof(head), 0);
	if (errno)
		return why_invalid(why, "cannot read %s: %s", s->path, strerror(errno));
	if (npy_is_name(s->path) || (n >= NPY_MAGIC_BYTES && memcmp(head, NPY_MAGIC, NPY_MAGIC_BYTES) == 0))
		return read_npy(s, head, n, (uint64_t)st.st_size, why);
	if (n == 0)
		return why_invalid(
		    why, "cannot use %s: it is empty; a matrix without elements is a .npy, which has its shape",
		    s->path);
	s->bytes = (uint64_t)st.st_size;
	return foreign_input(s->path, head, n, why);
}

int source_open(const char *path, struct source *ret, char *why)
{
	struct source s = {.path = path};

	s.fd = transfer_open(&s.path, why);
	if (s.fd < 0)
		return s.fd;
	int rc = inspect(&s, why);
	if (rc < 0) {
		close(s.fd);
		return rc;
	}
	*ret = s;
	return 0;
}

int source_check_typed(const struct source *s, kops_dtype asked, const char *how, char *why)
{
	if (!s->is_untyped || asked == KOPS_BF16)
		return 0;
	return why_invalid(
	    why,
	    "%s has elements of two bytes and no type ('V2'), as NumPy saves ml_dtypes.bfloat16; "
	    "if they are that, say so: %s",
	    s->path, how);
}

void source_close(struct source *source)
{
	if (source->fd >= 0)
		close(source->fd);
	source->fd = -1;
}

void source_set_matrix(struct source *source, uint64_t rows, uint64_t cols)
{
	source->rank = 2;
	source->shape[0] = rows;
	source->shape[1] = cols;
}

/* Returns the view of a whole file in a buffer. */
static kops_view view_of(const struct source *s, kops_buffer *buffer)
{
	kops_view v = kops_tensor(buffer, 0, s->dtype, s->rank, s->shape);
	int64_t stride = 1;

	for (uint32_t d = 0; s->fortran && d < s->rank; d++) {
		v.strides[d] = stride;
		stride *= (int64_t)s->shape[d];
	}
	return v;
}

static void turn(unsigned char *data, uint64_t bytes, size_t size)
{
	for (uint64_t at = 0; at < bytes; at += size)
		for (size_t i = 0, j = size - 1; i < j; i++, j--) {
			unsigned char byte = data[at + i];
			data[at + i] = data[at + j];
			data[at + j] = byte;
		}
}

static int say_short(const struct source *s, uint64_t done, char *why)
{
	return why_invalid(why, "cannot read %s after %" PRIu64 " of %" PRIu64 " bytes: %s", s->path,
	                   s->offset + done, s->offset + s->bytes,
	                   errno ? strerror(errno) : "it was truncated meanwhile");
}

static void turn_swapped(const struct source *s, void *data, uint64_t bytes)
{
	if (s->is_swapped)
		turn(data, bytes, kops_dtype_size(dtype_component(s->dtype)));
}

int source_read_piece(const struct source *s, void *data, uint64_t bytes, uint64_t from, char *why)
{
	uint64_t done = transfer_read_piece(s->fd, data, bytes, s->offset + from);

	if (done < bytes)
		return say_short(s, from + done, why);
	turn_swapped(s, data, bytes);
	return 0;
}

int source_load(const struct source *s, struct cli *cli, kops_view *ret_view)
{
	kops_buffer *buffer;

	int status = kops_alloc(cli->handle, s->bytes ? s->bytes : 8, KOPS_SHARED, NULL, &buffer);
	if (status < 0) {
		why_invalid(cli->why, "out of memory for %s: %s", s->path, kops_error(cli->handle));
		return cli_fail_kops(cli, status, cli->why);
	}
	uint64_t done = transfer_read(s->fd, s->path, kops_data(buffer), s->bytes, s->offset);
	if (done < s->bytes) {
		say_short(s, done, cli->why);
		return CLI_FAILED;
	}
	turn_swapped(s, kops_data(buffer), s->bytes);
	*ret_view = view_of(s, buffer);
	return CLI_OK;
}
