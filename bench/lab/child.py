"""What a process that the laboratory starts begins with, in place of the script of its parent.

`corelane` may run without `site`, and its processes then do: they find the package once it has run.
"""

import sys

if sys.flags.no_site:
    import site

    site.main()
