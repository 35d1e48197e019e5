/*
 * sink.h: where results go: standard output, or the file of -o, which appears complete or not at all. The bytes
 * go to a temporary name beside it, which sink_close(), SIGINT, SIGTERM and SIGHUP remove.
 */
#ifndef KOPS_CLI_FILES_SINK_H
#define KOPS_CLI_FILES_SINK_H

#include <stdbool.h>

#include "files/element.h"

struct sink; /* opaque */

/*
 * Opens a temporary file beside `path`, so that a wrong folder is known before any work. An existing path that
 * is no regular file (/dev/null, a pipe) is written in place. "-" is standard output, where npy chooses the
 * .npy format. Returns NULL with a sentence in why (CLI_WHY_BYTES).
 */
struct sink *sink_open(const char *path, bool npy, char *why);

/*
 * Writes the elements in C order, after a header in a .npy, and renames the file. Returns 0, or KOPS_E_SYSTEM
 * with errno.
 */
int sink_write(struct sink *sink, const struct elements *e, char *why);

/*
 * The same in pieces: a header for elements like these, whose data are not read; dense elements in C order, on
 * any thread and without showing anything; the rename.
 */
int sink_write_header(struct sink *sink, const struct elements *e, char *why);
int sink_write_piece(struct sink *sink, const void *data, uint64_t bytes, char *why);
int sink_finish(struct sink *sink, char *why);

/* Returns true if what is written appears only when the sink is finished. */
bool sink_is_hidden(const struct sink *sink);

/* Frees the sink. Without a successful write no file remains. NULL is allowed. */
void sink_close(struct sink *sink);

/*
 * Makes the signals that end a program call first(), which must be async-signal-safe, and remove the temporary
 * names. The program then dies of the signal, and kopsd drops its jobs. Call it once, from main().
 */
void sink_catch_signals(void (*first)(void));

#endif
