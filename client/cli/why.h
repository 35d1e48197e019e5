/* why.h: the sentence that tells people what went wrong, for code that has no struct cli. */
#ifndef KOPS_CLI_WHY_H
#define KOPS_CLI_WHY_H

#define CLI_WHY_BYTES 1024 /* room for it */

/* Writes the sentence and returns KOPS_E_INVALID. why may be NULL. */
int why_invalid(char why[CLI_WHY_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
