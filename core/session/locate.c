/* See locate.h. */
#include "core/session/locate.h"
#include "core/base/file.h"
#include "core/config/run_cfg.h"

#include <stdlib.h>
#include <string.h>

enum zf_status zf_locate_run(char **out, const char *argument, struct zf_err *e)
{
    *out = NULL;
    if (zf_directory_exists(argument)) return (*out = strdup(argument)) ? ZF_OK : zf_fail_memory(e, argument);
    if (!zf_file_exists(argument)) return zf_fail(e, ZF_USAGE, argument, "there is no such run directory and no such run.cfg");
    struct zf_options o;
    ZF_TRY(zf_run_cfg_options(&o, NULL, argument, e));
    *out = strdup(o.dir);
    zf_options_free(&o);
    return *out ? ZF_OK : zf_fail_memory(e, argument);
}
