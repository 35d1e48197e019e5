/*
 * foreign.h: recognizes files that are neither .npy nor raw elements. Taken for elements, their bytes would
 * give a wrong result without an error whenever the size happens to fit.
 */
#ifndef KOPS_CLI_FILES_FOREIGN_H
#define KOPS_CLI_FILES_FOREIGN_H

#include <stddef.h>

/*
 * Checks whether an input's name, or its first len bytes (4 KiB are enough), show another format. Returns 0, or
 * KOPS_E_INVALID with a sentence in why (CLI_WHY_BYTES) that says how to convert the file.
 */
int foreign_input(const char *path, const unsigned char *head, size_t len, char *why);

/*
 * Checks whether an output's name asks for another format. Returns 0, or KOPS_E_INVALID with a sentence in why.
 */
int foreign_output(const char *path, char *why);

#endif
