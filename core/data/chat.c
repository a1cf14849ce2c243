#include "core/data/chat.h"
