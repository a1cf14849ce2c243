#ifndef ZF_TESTS_WORLD_SUPPORT_H
#define ZF_TESTS_WORLD_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#endif
