#include "files/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/npy.h"
#include "files/safetensors.h"
#include "options.h"

/* ---- Files ---- */

static void on_truncated(int number)
{
	static const char sentence[] =
	    "\nthe file was truncated while it was read; load it again when it is whole\n";

	(void)number;
	if (write(STDERR_FILENO, sentence, sizeof(sentence) - 1) < 0)
		_exit(EXIT_FAILURE);
	_exit(EXIT_FAILURE);
}

static int map(int fd, struct weights *w, char *why)
{
	struct stat st;
	void *data;

	if (fstat(fd, &st) < 0)
		return why_invalid(why, "cannot read %s: %s", w->path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size <= 0)
		return why_invalid(why, "cannot use %s: it is %s", w->path,
		                   S_ISREG(st.st_mode) ? "empty" : "no regular file");
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return why_invalid(why, "cannot map %s: %s", w->path, strerror(errno));
	madvise(data, (size_t)st.st_size, MADV_SEQUENTIAL);
	w->data = data;
	w->bytes = (uint64_t)st.st_size;
	return 0;
}

int weights_open(const char *path, struct weights *ret, char *why)
{
	struct sigaction action = {.sa_handler = on_truncated};
	struct weights w = {.path = path};
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return why_invalid(why, "cannot open %s: %s", path, strerror(errno));
	sigaction(SIGBUS, &action, NULL);
	rc = map(fd, &w, why);
	close(fd);
	if (rc == 0)
		*ret = w;
	return rc;
}

void weights_close(struct weights *w)
{
	munmap((void *)w->data, w->bytes);
}

/* ---- Arrays ---- */

struct visiting {
	const struct weights *weights;
	int (*visit)(const struct weight *weight, void *user);
	void *user;
};

/* Fits `rank` axes into those that kops has: more become one. */
static void set_shape(struct weight *w, uint32_t rank, const uint64_t *shape)
{
	w->rank = rank > 0 && rank <= KOPS_RANK_MAX ? rank : 1;
	w->shape[0] = 1;
	if (w->rank == rank)
		memcpy(w->shape, shape, rank * sizeof(shape[0]));
	for (uint32_t d = 0; rank > KOPS_RANK_MAX && d < rank; d++)
		w->shape[0] *= shape[d]; /* the bytes of all fit in the file */
}

static int visit_tensor(const struct safetensor *t, void *user)
{
	const struct visiting *v = user;
	struct weight w = {
	    .name = t->name, .dtype = t->dtype, .data = v->weights->data + t->offset, .bytes = t->bytes};

	if (t->dtype)
		set_shape(&w, t->rank, t->shape);
	return v->visit(&w, v->user);
}

static int visit_npy(const struct visiting *v, kops_dtype asked, char *why)
{
	const struct weights *from = v->weights;
	struct weight w = {.name = ""};
	struct npy_header h;

	if (npy_parse(from->data, from->bytes < NPY_HEADER_MAX ? from->bytes : NPY_HEADER_MAX, &h, why) < 0)
		return why_invalid(why, "cannot use %s: %s", from->path, why);
	if (h.bytes != from->bytes - h.offset)
		return why_invalid(why, "%s is %s", from->path,
		                   h.bytes > from->bytes - h.offset ? "cut short" : "too long for its header");
	if (h.is_swapped || (h.fortran && h.rank > 1))
		return why_invalid(why, "%s is %s; save numpy.ascontiguousarray(a, a.dtype.newbyteorder('<'))",
		                   from->path, h.is_swapped ? "big-endian" : "in Fortran order");
	if (h.is_untyped && asked != KOPS_BF16)
		return why_invalid(
		    why, "%s has elements of two bytes and no type; if they are bf16, say --dtype bf16",
		    from->path);
	w.dtype = h.dtype;
	w.data = from->data + h.offset;
	w.bytes = h.bytes;
	set_shape(&w, h.rank, h.shape);
	return v->visit(&w, v->user);
}

int weights_each(const struct weights *weights, kops_dtype asked,
                 int (*visit)(const struct weight *weight, void *user), void *user, char *why)
{
	struct visiting v = {weights, visit, user};
	char sentence[CLI_WHY_BYTES] = "";
	int rc;

	if (!safetensors_is_name(weights->path))
		return visit_npy(&v, asked, why);
	rc = safetensors_read(weights->data, weights->bytes, visit_tensor, &v, sentence);
	if (rc < 0 && sentence[0])
		why_invalid(why, "cannot use %s: %s", weights->path, sentence);
	return rc;
}
