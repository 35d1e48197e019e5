/*
 * foreign.h: files that are neither .npy nor raw elements. Their bytes, taken for elements, would give a wrong
 * result without an error wherever the size happens to fit.
 */
#ifndef KOPS_CLI_FILES_FOREIGN_H
#define KOPS_CLI_FILES_FOREIGN_H

#include <stddef.h>

/*
 * Whether an input's name, or its first len bytes (4 KiB are enough), show another format. KOPS_E_INVALID with
 * a sentence in why (CLI_WHY_BYTES) that says how to convert it, else 0.
 */
int foreign_input(const char *path, const unsigned char *head, size_t len, char *why);

/* Whether an output's name asks for another format: KOPS_E_INVALID with a sentence in why, else 0. */
int foreign_output(const char *path, char *why);

#endif
