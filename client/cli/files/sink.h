/*
 * sink.h: where results go: standard output, or the file of -o. That one comes into being under its name
 * complete, or not at all: the bytes go to a temporary name beside it, which sink_close(), SIGINT, SIGTERM and
 * SIGHUP remove.
 */
#ifndef KOPS_CLI_FILES_SINK_H
#define KOPS_CLI_FILES_SINK_H

#include <stdbool.h>

#include "files/element.h"

struct sink; /* opaque */

/*
 * Opens for writing beside `path`, so that a wrong directory is known before work is done. A path that is there
 * and no regular file (/dev/null, a pipe) is written in place. "-" is standard output, where npy asks for what
 * a .npy file holds. NULL with a sentence in why (CLI_WHY_BYTES).
 */
struct sink *sink_open(const char *path, bool npy, char *why);

/* Writes the elements in C order, in a .npy behind a header, and puts a file in place. 0, or KOPS_E_SYSTEM with
 * errno. */
int sink_write(struct sink *sink, const struct elements *e, char *why);

/* Frees; without a successful write nothing remains. NULL is allowed. */
void sink_close(struct sink *sink);

/*
 * Has the signals that end a program call first(), which may be interrupted anywhere, and remove the temporary
 * names. The program then dies of the signal, and its session with it: kopsd drops its jobs. Once, from main().
 */
void sink_catch_signals(void (*first)(void));

#endif
