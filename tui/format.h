/* Numbers as people read them: short, of few forms, with a unit, so that columns stand still. Each writes into `to` and returns it; what is
 * not known (NaN) is "--". Pure. */
#ifndef ZF_TUI_FORMAT_H
#define ZF_TUI_FORMAT_H

#include <stddef.h>
#include <stdint.h>

enum { ZF_FORMAT_ROOM = 24 };

const char *zf_format_value(char to[ZF_FORMAT_ROOM], double v);   /* four digits: 2.114, 31.42, 1.00e-05 */
const char *zf_format_count(char to[ZF_FORMAT_ROOM], double v);   /* 640, 31.4k, 1.92M */
const char *zf_format_bytes(char to[ZF_FORMAT_ROOM], double v);   /* 61.2 GiB */
const char *zf_format_share(char to[ZF_FORMAT_ROOM], double v);   /* of 0..1: 1.4 %, 97 % */
const char *zf_format_clock(char to[ZF_FORMAT_ROOM], double s);   /* 0:03:12; blank below 0 */

#endif
