#include "core/data/pack.h"
