#include "verb/commands.h"

const struct command *const commands_all[] = {
    &command_sgemm,   &command_gemm, &command_softmax, &command_transpose, &command_add,     &command_run,
    &command_devices, &command_ops,  &command_ping,    &command_stats,     &command_version, NULL,
};
