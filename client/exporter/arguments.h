/* arguments.h: the options of kops-exporter. kops-manual reads them too, for shell completions. */
#ifndef KOPS_EXPORTER_ARGUMENTS_H
#define KOPS_EXPORTER_ARGUMENTS_H

#include "options.h"

#define ARGUMENTS_LISTEN "127.0.0.1:9847"

extern const struct option_row arguments_options[];

#endif
