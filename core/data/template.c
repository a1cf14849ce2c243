#include "core/data/layout.h"
