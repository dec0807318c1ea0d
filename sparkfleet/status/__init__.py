"""The fleet at a glance: observed states become one document, and that becomes text or a page. No pyinfra."""
