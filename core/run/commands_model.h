/* tokenize, inspect, export: commands on models and files. Each prints to stdout and returns its status. */
#ifndef ZF_RUN_COMMANDS_MODEL_H
#define ZF_RUN_COMMANDS_MODEL_H

#include "core/base/args.h"
#include "core/model/family.h"

enum zf_status zf_command_tokenize(struct zf_args *a, struct zf_err *e);
enum zf_status zf_command_inspect(struct zf_args *a, struct zf_err *e);
enum zf_status zf_command_export(struct zf_args *a, struct zf_err *e);

/* Parts of inspect. What is damaged is ZF_FORMAT, by name, after all that could be read. */
void zf_print_model(const struct zf_model_config *c);
enum zf_status zf_inspect_checkpoint(const char *path, bool json, struct zf_err *e);
enum zf_status zf_inspect_run(const char *run, bool json, struct zf_err *e);

#endif
