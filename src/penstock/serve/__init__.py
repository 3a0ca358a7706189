"""Serves readers: the current contents of views and tables, and the fan-out of their changes."""
