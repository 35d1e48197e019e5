/*
 * learned_file.h: what jobs on a device showed (learned.h), as a text file that outlives the daemon:
 *
 *     kops learned 1
 *     kopsd 0.1.0 on NVIDIA H200, compute capability 9.0, 132 SMs, driver 580.159.04, CUDA 13.0
 *     gemm 8f3a01c2d4e5f607 cublas 0 61.5 5 f16x3 33 35.1 3 simt 49 51.6 3
 *
 * A line holds an op and the hash of a shape, then kernels, the first choice first: name, microseconds
 * expected, microseconds of the shortest trial (0: none yet), trials begun. Shapes used last come first. The
 * second line names the daemon and the device as it describes itself, driver included: the file counts for no
 * other.
 *
 * The file is not trusted. One malformed line invalidates the file. It can make a job slow, not wrong.
 */
#ifndef KOPS_LEARNED_FILE_H
#define KOPS_LEARNED_FILE_H

#include "device/learned.h"

#define LEARNED_FILE_BYTES_MAX (2u << 20)

struct learned_file {
	const char *path;
	const char *device; /* its name, for the log */
	const char *daemon,
	    *description; /* "kopsd 0.1.0", and what the device says of itself: the second line */
	const struct kernel_list *(*kernels)(const struct op *op);
};

/*
 * Takes what a text says into `learned`, which is empty. 1, or 0 where the text is of another daemon or device;
 * KOPS_E_INVALID with the line and what is wrong with it in why: `learned` then holds some of it, to be
 * dropped.
 */
int learned_file_parse(const struct learned_file *file, const char *text, size_t bytes, struct learned *learned,
                       char why[WHY_BYTES]);

/* The table of a file, or an empty one where there is no file, or none that counts: the log says so. NULL: out
 * of memory. */
struct learned *learned_file_load(const struct learned_file *file, const struct learned_owner *owner);

/* Puts a new file in the place of the old one, all or nothing. Any thread. Waits for the disk. KOPS_E_SYSTEM
 * with a sentence in why. */
int learned_file_save(const struct learned_file *file, const struct learned_shape *shapes, size_t n,
                      char why[WHY_BYTES]);

#endif
