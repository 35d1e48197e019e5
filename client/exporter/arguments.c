#include "arguments.h"

const struct option_row arguments_options[] = {
    OPTION("listen", 0, "ADDRESS:PORT", text, listen, "where to serve; default " ARGUMENTS_LISTEN),
    OPTION("version", 'V', NULL, switch, version, "print the version"), OPTIONS_END};
