/* tokenize, inspect, export: commands on models and files. Each prints to stdout and returns its status. */
#ifndef ZF_RUN_COMMANDS_MODEL_H
#define ZF_RUN_COMMANDS_MODEL_H

#include "core/base/args.h"

enum zf_status zf_command_tokenize(struct zf_args *a, struct zf_err *e);
enum zf_status zf_command_inspect(struct zf_args *a, struct zf_err *e);
enum zf_status zf_command_export(struct zf_args *a, struct zf_err *e);

#endif
