/* tuning_file.h: the tuning table on disk, as the daemon's devices use it. Loop thread. */
#ifndef KOPS_TUNING_FILE_H
#define KOPS_TUNING_FILE_H

#include "device/device.h"
#include "device/tuning.h"

/*
 * What the table at this path has of the device; NULL: nothing, or an empty path. Whatever is wrong with the
 * file is logged, and leaves the device without measurements, not without service. Free with tuning_free().
 */
struct tuning *tuning_file_load(const char *path, const struct device *device);

#endif
