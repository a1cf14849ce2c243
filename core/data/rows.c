#include "core/data/rows.h"
