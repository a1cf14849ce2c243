/* A script from standard input, its result to standard output (script.h). */
#include "script.h"

int main(void)
{
    json_error_t error;
    json_t *script = json_loadf(stdin, 0, &error);
    if (!script) {
        fprintf(stderr, "the script, line %d: %s\n", error.line, error.text);
        return 1;
    }
    json_t *result = run_script(script);
    json_dumpf(result, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(result);
    json_decref(script);
    return 0;
}
