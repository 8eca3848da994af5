<?php

return ['app_debug' => false, 'default_timezone' => 'UTC'];
