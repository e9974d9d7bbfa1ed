"""Reports: what turns stored runs into figures, tables and pages."""
