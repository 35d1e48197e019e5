/* decline.h: if kopsd cannot start, tells clients waiting at an inherited socket why. */
#ifndef KOPS_DECLINE_H
#define KOPS_DECLINE_H

/*
 * Answers each client that waits at a listening socket with this sentence, and hangs up. Otherwise they would
 * only see a timeout. Does not block. Does nothing if fd is negative.
 */
void decline_waiting(int fd, const char *sentence);

#endif
