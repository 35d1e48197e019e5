/* standard_fds.h: descriptors 0 to 2 of a program that was started without some of them. */
#ifndef KOPS_STANDARD_FDS_H
#define KOPS_STANDARD_FDS_H

/*
 * Opens /dev/null for those of descriptors 0 to 2 that are closed. Otherwise the next file or socket that the
 * program opens takes the number, and what it or a library prints goes there. Reading and writing fail as on a
 * closed descriptor. To be called first in main(), before there are threads.
 */
void standard_fds_open(void);

#endif
