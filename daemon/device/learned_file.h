/*
 * learned_file.h: what jobs on a device showed (learned.h), as a text file that outlives the daemon:
 *
 *     kops learned 1
 *     kopsd 0.1.0 on NVIDIA H200, compute capability 9.0, 132 SMs, driver 580.159.04, CUDA 13.0
 *     gemm 8f3a01c2d4e5f607 cublas 0 61.5 5 f16x3 33 35.1 3 simt 49 51.6 3
 *
 * A line holds an op, the hash of a shape, and kernels, the first choice first. Each kernel has its name, the
 * µs expected, the µs of its shortest trial (0: none yet) and the number of trials begun. The most recently
 * used shapes come first. The second line names the daemon and the device as it describes itself, driver
 * included. The file is valid for no other.
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
	    *description; /* "kopsd 0.1.0", and the device's description of itself: the second line */
	const struct kernel_list *(*kernels)(const struct op *op);
};

/*
 * Reads a text into `learned`, which is empty. Returns 1, or 0 if the text is of another daemon or device.
 * KOPS_E_INVALID with the line and its error in why; then `learned` is incomplete and must be freed.
 */
int learned_file_parse(const struct learned_file *file, const char *text, size_t bytes, struct learned *learned,
                       char why[WHY_BYTES]);

/* The table of a file. It is empty if there is no file, or no valid one; the log says so. NULL: out of
 * memory. */
struct learned *learned_file_load(const struct learned_file *file, const struct learned_owner *owner);

/* Replaces the file as a whole, or leaves it unchanged. Any thread. Waits for the disk. KOPS_E_SYSTEM with a
 * sentence in why. */
int learned_file_save(const struct learned_file *file, const struct learned_shape *shapes, size_t n,
                      char why[WHY_BYTES]);

#endif
