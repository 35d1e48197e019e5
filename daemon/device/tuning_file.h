/* tuning_file.h: the tuning table on disk, as the daemon's devices use it. Loop thread. */
#ifndef KOPS_TUNING_FILE_H
#define KOPS_TUNING_FILE_H

struct server;

/*
 * Reads the setting tuning-table again for every device. Whatever is wrong with the file is logged, and leaves
 * the devices without measurements, not without service.
 */
void tuning_file_load(struct server *server);

/* Forgets all tables. */
void tuning_file_unload(struct server *server);

#endif
