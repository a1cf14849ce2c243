/* check: reads everything, trains nothing. doctor: what this machine has. */
#ifndef ZF_RUN_CHECK_H
#define ZF_RUN_CHECK_H

#include "core/config/options.h"
#include "core/base/args.h"

enum zf_status zf_check_run(const struct zf_options *o, bool json, const volatile int *stop, struct zf_err *e);
enum zf_status zf_doctor_run(struct zf_err *e);

#endif
