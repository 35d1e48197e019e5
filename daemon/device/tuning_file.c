#include "device/tuning_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

#define NEXT_STEP "; kernels are chosen by estimates until `kops-bench tune` has written it anew"

/* All of a file of known size. */
static char *read_bytes(int fd, size_t bytes)
{
	char *text = malloc(bytes + 1);
	size_t used = 0;

	while (text && used < bytes) {
		ssize_t n = read(fd, text + used, bytes - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) { /* cut off meanwhile, which does not happen to one that is replaced */
			errno = n == 0 ? ENODATA : errno;
			free(text);
			return NULL;
		}
		used += (size_t)n;
	}
	return text;
}

/* NULL where there is nothing to use; the log says why. A FIFO must not block us. */
static char *read_file(const char *path, size_t *ret_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	char *text = NULL;

	if (fd < 0 && errno == ENOENT) {
		log_info("no tuning table %s; `kops-bench tune` measures one", path);
		return NULL;
	}
	if (fd < 0 || fstat(fd, &st) < 0) {
		log_warning("cannot read the tuning table %s: %s" NEXT_STEP, path, strerror(errno));
	} else if (!S_ISREG(st.st_mode) || st.st_size > (off_t)TUNING_BYTES_MAX) {
		log_warning("the tuning table %s is no file of at most %u bytes" NEXT_STEP, path,
		            TUNING_BYTES_MAX);
	} else {
		*ret_bytes = (size_t)st.st_size;
		text = read_bytes(fd, *ret_bytes);
		if (!text)
			log_warning("cannot read the tuning table %s: %s" NEXT_STEP, path, strerror(errno));
	}
	if (fd >= 0)
		close(fd);
	return text;
}

static struct tuning *parse(const char *path, const struct device *device, const char *text, size_t bytes)
{
	const struct tuning_owner owner = {.daemon = "kopsd " KOPS_VERSION,
	                                   .description = device_info(device)->description,
	                                   .kernels = device_backend(device)->kernels};
	const char *name = device_name(device);
	struct tuning *tuning = NULL;
	char why[TUNING_WHY_BYTES];
	bool stale;

	if (tuning_parse(text, bytes, &owner, &tuning, &stale, why) < 0)
		log_warning("the tuning table %s is void: %s" NEXT_STEP, path, why);
	else if (tuning)
		log_info("device %s: measurements of %zu classes of shapes in %s", name, tuning_count(tuning),
		         path);
	else if (stale)
		log_warning("device %s: the measurements in %s are of another version of kopsd or of its "
		            "driver" NEXT_STEP,
		            name, path);
	else
		log_info("device %s: %s holds no measurements of it; `kops-bench tune` makes some", name, path);
	return tuning;
}

struct tuning *tuning_file_load(const char *path, const struct device *device)
{
	struct tuning *tuning = NULL;
	size_t bytes = 0;
	char *text;

	if (*path == '\0')
		return NULL;
	text = read_file(path, &bytes);
	if (text)
		tuning = parse(path, device, text, bytes);
	free(text);
	return tuning;
}
